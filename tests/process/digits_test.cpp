// The digits example over processes, as a user runs it.
#include <nlohmann/json.hpp>

#include "tests/process/launcher.h"
#include "tests/support/folder.h"
#include "tests/support/skip.h"

using namespace troupe::testing;

namespace {

Launcher digits(const Folder& folder, std::vector<std::string> flags) {
  flags.insert(flags.begin(),
               {"-n", "3", program("digits"), "--chart", (folder.path / "chart.svg").string()});
  return Launcher(flags);
}

// The last line of the output; the program must have ended well.
nlohmann::json result(Process& job) {
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  REQUIRE(code == 0);
  CHECK(job.nothing_left());
  REQUIRE(job.output.ends_with("}\n"));
  const size_t start = job.output.rfind('\n', job.output.size() - 2);
  return nlohmann::json::parse(job.output.substr(start == std::string::npos ? 0 : start + 1));
}

// Of a folder with such files nothing is trained: the driver says `text` and all workers end.
void refused(const Folder& folder, const std::string& data, const std::string& text) {
  auto job = digits(folder, {"--data", data});
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  CHECK(code == 1);
  CHECK(job.nothing_left());
  CHECK(job.errors.find("w0: error: ") != std::string::npos);
  CHECK(job.errors.find(text) != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path / "chart.svg"));
}

std::string idx(uint8_t dims, std::vector<uint32_t> sizes, size_t bytes) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(dims)};
  for (uint32_t n : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(n >> shift);
  return text + std::string(bytes, '\1');
}

}  // namespace

TEST_CASE("digits over three processes ends with its result as one JSON line and a picture", "[process]") {
  Folder folder;
  auto job = digits(folder, {"--epochs", "1", "--json"});
  const auto json = result(job);
  CHECK(json.size() == 5);
  CHECK(json.at("steps") == 157);
  CHECK(json.at("test_accuracy").get<double>() > 0.5);
  CHECK(json.at("test_accuracy").get<double>() <= 1);
  CHECK(json.at("final_loss").get<double>() > 0);
  CHECK(json.at("samples_per_s").get<double>() > 0);
  CHECK(json.at("seconds").get<double>() > 0);
  CHECK(content(folder.path / "chart.svg").find("</svg>") != std::string::npos);

  auto again = digits(folder, {"--epochs", "1", "--json"});
  CHECK(result(again).at("final_loss") == json.at("final_loss"));
  Process alone(
      {program("digits"), "--epochs", "1", "--json", "--chart", (folder.path / "alone.svg").string()});
  CHECK(result(alone).at("final_loss") == json.at("final_loss"));
  auto other = digits(folder, {"--epochs", "1", "--json", "--seed", "7"});
  CHECK(result(other).at("final_loss") != json.at("final_loss"));
}

TEST_CASE("digits learns MNIST's test images over three processes", "[process]") {
  const char* data = std::getenv("TROUPE_DATA");
  if (!data) {
    skip_test("TROUPE_DATA does not name a folder");
    return;
  }
  Folder folder;
  auto job = digits(folder, {"--data", data, "--epochs", "5", "--json"});
  CHECK(result(job).at("test_accuracy").get<double>() >= 0.93);
}

TEST_CASE("digits says what is wrong with its data, and all workers end", "[process]") {
  Folder folder;
  refused(folder, "/nonexistent", "[mnist] --data /nonexistent: no such directory");
  refused(folder, folder.path.string(), "no files found");
  const auto images = folder.file("t10k-images-idx3-ubyte", idx(3, {10, 28, 28}, 10 * 784 - 1));
  const auto labels = folder.file("t10k-labels-idx1-ubyte", idx(1, {10}, 10));
  refused(folder, folder.path.string(), images);  // one byte is missing
  folder.file("t10k-images-idx3-ubyte", idx(3, {10, 28, 28}, 10 * 784));
  folder.file("t10k-labels-idx1-ubyte", idx(1, {4000000000}, 10));
  refused(folder, folder.path.string(), labels);
  folder.file("t10k-labels-idx1-ubyte", "these are no labels");
  refused(folder, folder.path.string(), labels);
  std::filesystem::remove(labels);
  folder.file("t10k-labels-idx1-ubyte.gz", "\x1f\x8b broken");
  refused(folder, folder.path.string(), labels + ".gz");
}

TEST_CASE("a flag that digits does not know trains nothing and names the nearest", "[process]") {
  Folder folder;
  auto job = digits(folder, {"--epoch", "1"});
  CHECK(job.exit_code() == 2);
  CHECK(job.nothing_left());
  CHECK(job.output.empty());
  CHECK(job.errors.find("--epochs") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path / "chart.svg"));
}
