// Curves for TensorBoard, read back by its own reader where that is installed, and lines of JSON.
#include "data/formats/summary.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/tensor/creation.h"
#include "data/formats/event_file.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/places.h"
#include "tests/support/skip.h"

using namespace troupe;
using datasets::Summary;

namespace {

std::string event_file_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) return entry.path().string();
  return "";
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("CRC-32C is that of its standard") { CHECK(datasets::crc32c("123456789", 9) == 0xe3069283u); }

TEST_CASE("each event is whole in the file when the call returns") {
  const testing::Folder folder;
  Summary summary(folder.path.string() + "/new/run");
  size_t before = 0;
  for (int64_t step = 0; step < 3; ++step) {
    summary.scalar("loss", 0.5, step);
    const std::string bytes = contents(event_file_in(folder.path.string() + "/new/run"));
    CHECK(bytes.size() > before);
    before = bytes.size();
    size_t records = 0;
    for (size_t at = 0; at < bytes.size(); ++records) {
      uint64_t size = 0;
      REQUIRE(bytes.size() - at >= 16);
      std::memcpy(&size, bytes.data() + at, 8);
      at += 16 + size;
      REQUIRE(at <= bytes.size());
    }
    CHECK(records == static_cast<size_t>(step) + 2);
  }
}

TEST_CASE("a line of JSON for each step has all its scalars") {
  const testing::Folder folder;
  {
    Summary summary(folder.path.string());
    summary.scalar("loss", 0.5, 0);
    summary.scalar("accuracy", 0.25, 0);
    summary.scalar("loss", std::numeric_limits<double>::infinity(), 1);
  }
  std::ifstream lines(folder.path.string() + "/steps.jsonl");
  std::string line;
  REQUIRE(std::getline(lines, line));
  const auto first = nlohmann::json::parse(line);
  CHECK(first.at("step") == 0);
  CHECK(first.at("loss") == 0.5);
  CHECK(first.at("accuracy") == 0.25);
  REQUIRE(std::getline(lines, line));
  CHECK(nlohmann::json::parse(line).at("loss") == "inf");
  CHECK_FALSE(std::getline(lines, line));
}

TEST_CASE("what is no folder, and what is no picture, is refused in words") {
  const testing::Folder folder;
  std::ofstream(folder.path.string() + "/file") << "x";
  CHECK(testing::error_of([&] { Summary summary(folder.path.string() + "/file"); }).kind() == ErrorKind::invalid);
  Summary summary(folder.path.string());
  const Error error = testing::error_of([&] { summary.picture("p", ones({4}), 0); });
  CHECK(error.kind() == ErrorKind::invalid);
  CHECK(std::string(error.what()).find("{height, width} or {3, height, width}") != std::string::npos);
}

TEST_CASE("TensorBoard's reader has the values that were written") {
  if (std::system("python3 -c 'import tensorboard' 2>/dev/null") != 0)
    return testing::skip_test("PyPI's tensorboard is not installed");
  const testing::Folder folder;
  {
    Summary summary(folder.path.string());
    for (int64_t step = 0; step < 100; ++step) summary.scalar("loss", 1.0 / static_cast<double>(step + 1), step);
    summary.histogram("weights", arange(1000), 7);
    summary.histogram("nothing", full({3}, std::numeric_limits<double>::quiet_NaN()), 7);
    summary.text("notes", "**first**", 1);
    summary.picture("grey", full({2, 3}, 0.5), 2);
    summary.picture("colours", ones({3, 4, 5}), 2);
  }
  const std::string reader = testing::kSourceFolder + std::string("/tests/data/tensorboard_reads.py ") + folder.path.string();
  CHECK(std::system(("python3 " + reader).c_str()) == 0);
}
