// Checkpoints of jobs: what is written comes back, every damage is refused, no name leads out of a folder.
#include "data/checkpoint/checkpoint_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/tensor/creation.h"
#include "data/formats/crc32.h"
#include "data/formats/safetensors.h"
#include "tests/data/checkpoints.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/places.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::datasets;
using Catch::Contains;
using troupe::testing::commit_step;
using troupe::testing::content;
using troupe::testing::Folder;
using troupe::testing::index_of;
using troupe::testing::invalid_text;
namespace fs = std::filesystem;

namespace {

NamedTensors all_of(const Checkpoint& saved) {
  NamedTensors all = saved.tensors("", true);
  all.merge(saved.tensors("", false));
  return all;
}

void write_over(const fs::path& path, const std::string& text) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << text;
}

// An index of this JSON, with the end that a whole one has.
std::string sealed(const std::string& json) {
  std::string text = json.substr(0, json.rfind('}'));
  while (text.ends_with('\n') || text.ends_with(' ')) text.pop_back();
  return fmt::format("{},\n \"crc32\": {}\n}}\n", text, crc32_of(text.data(), text.size()));
}
std::string refused(const std::string& json) {
  return invalid_text([&] { parse_checkpoint_index(sealed(json), "[checkpoint] DIR/index: "); });
}
nlohmann::json whole_json() {
  const CheckpointFile file{"w1.model.safetensors", 100, 1, 80, 2, true, {{"Bottom#0.w", 3}}};
  auto json = nlohmann::json::parse(checkpoint_index_text(index_of(5, {file})));
  json.erase("crc32");
  return json;
}
// That of an index with one member of "troupe", or of its file, changed.
std::string refused_with(const char* key, const nlohmann::json& value, bool of_file) {
  auto json = whole_json();
  (of_file ? json["troupe"]["files"][0] : json["troupe"])[key] = value;
  return refused(json.dump());
}

}  // namespace

TEST_CASE("a checkpoint comes back bit for bit, by the first part of names, the model apart",
          "[data][checkpoint]") {
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  const std::string folder = commit_step(all, 120);
  CHECK(folder == (dir.path / "run" / "step-0000000120").string());
  CHECK(committed_steps(all.dir()) == std::vector<int64_t>{120});
  const Checkpoint saved(folder);
  saved.verify();
  CHECK(saved.index().step == 120);
  CHECK(saved.index().program == "a build");
  CHECK(saved.index().instructions == "avx2");
  CHECK(saved.index().world == 2);
  CHECK(saved.index().layout.at("Top#0") == "w2");
  CHECK(saved.tensors("Bottom#0.", true).at("w").to_vector<float>() == std::vector<float>{120, 2, 3, 4});
  CHECK(saved.tensors("Bottom#0.", false).at("stream").to_vector<int64_t>() == std::vector<int64_t>{120, 7});
  CHECK(saved.tensors("Bottom#0.", false).at("none").shape() == Shape{0, 3});
  CHECK(saved.tensors("Top#0.", false).empty());
  CHECK(saved.tensors("", true).size() == 2);
}

TEST_CASE("the index is one that Hugging Face's loaders read, and files say that they are PyTorch's",
          "[data][checkpoint]") {
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  const fs::path folder = commit_step(all, 3);
  const auto json = nlohmann::json::parse(content(folder / "model.safetensors.index.json"));
  CHECK(json.at("weight_map") ==
        nlohmann::json{{"Bottom#0.w", "w1.model.safetensors"}, {"Top#0.w", "w2.model.safetensors"}});
  CHECK(json.at("metadata").at("total_size") == 4 * 4 + 8);
  const std::string bytes = content(folder / "w1.state.safetensors");
  const auto& file = json.at("troupe").at("files").at(1);
  CHECK(file.at("name") == "w1.state.safetensors");
  CHECK(file.at("bytes") == bytes.size());
  CHECK(file.at("crc32") == crc32_of(bytes.data(), bytes.size()));
  CHECK(Safetensors((folder / "w1.model.safetensors").string()).metadata() ==
        std::map<std::string, std::string>{{"format", "pt"}});
}

TEST_CASE("the checksum is the CRC-32 of zip and gzip, and adds up", "[data][checkpoint]") {
  CHECK(crc32_of("123456789", 9) == 0xcbf43926);
  Crc32 whole, second;
  whole.add("1234", 4), second.add("56789", 5), whole.add(second);
  CHECK(whole.value == 0xcbf43926);
  CHECK(whole.bytes == 9);
  Generator random(0);
  std::vector<unsigned char> bytes(5000);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random.below(256));
  for (int i = 0; i < 3000; ++i) {
    const size_t from = random.below(100), count = random.below(i % 2 ? 300 : bytes.size() - from + 1);
    Crc32 crc{static_cast<uint32_t>(random.below(uint64_t{1} << 32)), 0};
    const auto expected = static_cast<uint32_t>(::crc32_z(crc.value, bytes.data() + from, count));
    INFO(count << " bytes from " << from << " after " << crc.value);
    crc.add(bytes.data() + from, count);
    REQUIRE(crc.value == expected);
  }
}

TEST_CASE("every byte of a checkpoint that is flipped or cut off is refused, with the file's name",
          "[data][checkpoint]") {
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  const fs::path folder = commit_step(all, 3);
  const auto before = all_of(Checkpoint(folder.string()));
  size_t tried = 0;
  for (const char* name : {"model.safetensors.index.json", "w1.model.safetensors", "w1.state.safetensors"}) {
    const fs::path path = folder / name;
    const std::string whole = content(path);
    const auto refuses = [&](const std::string& bytes) {
      write_over(path, bytes);
      const std::string text = invalid_text([&] { all_of(Checkpoint(folder.string())); });
      ++tried;
      INFO(text);
      return text.starts_with("[") && text.find(name) != std::string::npos &&
             text.find("no error") == std::string::npos;
    };
    for (size_t i = 0; i < whole.size(); ++i) {
      INFO(name << " at " << i);
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
      REQUIRE(refuses(bytes));
      REQUIRE(refuses(whole.substr(0, i)));
    }
    if (std::string(name) != "model.safetensors.index.json") REQUIRE(refuses(whole + '\0'));
    write_over(path, whole);
  }
  CHECK(tried > 2000);
  const auto after = all_of(Checkpoint(folder.string()));
  for (const auto& [key, t] : before) CHECK(bit_equal(after.at(key), t));
}

TEST_CASE("a refusal says where the bytes are, and which other checkpoint is whole", "[data][checkpoint]") {
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  commit_step(all, 1);
  const fs::path second = commit_step(all, 2), third = commit_step(all, 3);
  const auto spoil = [](const fs::path& folder) {
    const fs::path path = folder / "w1.model.safetensors";
    std::string bytes = content(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_over(path, bytes);
    return Safetensors(path.string()).entries()[0].begin;
  };
  const uint64_t begin = spoil(third);
  CHECK_THAT(invalid_text([&] { Checkpoint(third.string()).tensors("Bottom#0.", true); }),
             Contains("w1.model.safetensors: \"Bottom#0.w\", the 16 bytes from " + std::to_string(begin) +
                      ", is not as it was written: their CRC-32 is "));
  CHECK_THAT(other_checkpoints(all.dir(), 3), Contains("of step 2, is whole") && Contains(third.string()));
  spoil(second);
  CHECK_THAT(other_checkpoints(all.dir(), 3), Contains("of step 1, is whole"));
  CHECK_THAT(other_checkpoints(all.dir(), 1), Contains("no other checkpoint that is whole"));
}

TEST_CASE("an index that names what it may not name is refused", "[data][checkpoint]") {
  const std::string where = "[checkpoint] DIR/index: ";
  CHECK(parse_checkpoint_index(sealed(whole_json().dump()), where).files.at(0).tensors.at("Bottom#0.w") == 3);
  for (const std::string name :
       {"../w1.model.safetensors", "/etc/passwd", "a/b", "..", ".hidden", "", "a\\b", "C:x", "a b", "w\n1"})
    CHECK_THAT(refused_with("name", name, true),
               Contains(where + "names the file") && Contains("expected a plain name"));
  CHECK_THAT(refused_with("name", std::string(201, 'x'), true), Contains("expected a plain name"));
  CHECK_THAT(refused_with("name", std::string("a\0b", 3), true), Contains("expected a plain name"));
  CHECK_THAT(refused_with("name", 7, true), Contains("\"name\" is \"7\", expected a text"));
  auto twice = whole_json();
  twice["troupe"]["files"].push_back(twice["troupe"]["files"][0]);
  CHECK_THAT(refused(twice.dump()), Contains("names the file w1.model.safetensors twice"));
}

TEST_CASE("numbers of an index that are none, or are too large, are refused", "[data][checkpoint]") {
  const uint64_t top = uint64_t{1} << 63;
  CHECK_THAT(refused_with("step", top, false),
             Contains("\"step\" is \"9223372036854775808\", expected a whole number "
                      "from 0 to 9223372036854775807"));
  CHECK_THAT(refused_with("step", -1, false), Contains("\"step\" is \"-1\", expected a whole number"));
  CHECK_THAT(refused_with("world", 1.5, false), Contains("expected a whole number"));
  CHECK_THAT(refused_with("format", 3, false), Contains("has format 3, expected at most 2"));
  CHECK_THAT(refused_with("crc32", uint64_t{1} << 32, true), Contains("from 0 to 4294967295"));
  CHECK_THAT(refused_with("header_bytes", top, true),
             Contains("has 100 bytes, 9223372036854775808 of them in its header"));
  CHECK_THAT(refused_with("model", 1, true), Contains("expected true or false"));
  CHECK_THAT(refused_with("tensors", {{"x", "y"}}, true), Contains("\"x\" is"));
  CHECK_THAT(refused_with("files", nlohmann::json::object(), false),
             Contains("\"files\" is \"an object\", expected a list") ||
                 Contains("\"files\" is an object, expected a list"));
  CHECK_THAT(refused_with("layout", {{"A#0", 1}}, false), Contains("\"layout\" has no worker for \"A#0\""));

  // A file may be as large as it says; it is not, and nothing is allocated for it.
  Folder dir;
  auto json = whole_json();
  json["troupe"]["files"][0]["bytes"] = top;
  write_over(dir.path / "model.safetensors.index.json", sealed(json.dump()));
  write_over(dir.path / "w1.model.safetensors", "short");
  CHECK_THAT(invalid_text([&] { all_of(Checkpoint(dir.path.string())); }),
             Contains("w1.model.safetensors: has 5 bytes, but 9223372036854775808 were written"));
}

TEST_CASE("an index that is no JSON, repeats names or nests without end is refused", "[data][checkpoint]") {
  CHECK_THAT(refused("{\"troupe\": {\"step\": 1, \"step\": 2}}"), Contains("has the name \"step\" twice"));
  CHECK_THAT(refused("{\"troupe\": {]}}"), Contains("is no JSON at byte 12"));
  CHECK_THAT(refused("{\"troupe\": 1e400}"), Contains("has a number that no float64 holds"));
  CHECK_THAT(refused("{\"a\": " + std::string(100'000, '[') + "}"), Contains("nests deeper"));
  CHECK_THAT(refused("{\"metadata\": {}, \"weight_map\": {}}"), Contains("has no \"troupe\""));
  CHECK_THAT(
      invalid_text([] { parse_checkpoint_index("{\"metadata\": {}, \"weight_map\": {}}", "here: "); }),
      Contains("here: has 34 bytes and no \"crc32\" at its end: cut short, or no index that Troupe wrote"));
}

TEST_CASE("an index of 200,000 tensors is read", "[data][checkpoint]") {
  CheckpointFile file{"w1.model.safetensors", 100, 1, 80, 2, true, {}};
  for (uint32_t i = 0; i < 200'000; ++i)
    file.tensors.emplace_hint(file.tensors.end(), fmt::format("A#{:07}.w", i), i);
  const auto read = parse_checkpoint_index(checkpoint_index_text(index_of(1, {file})), "here: ");
  CHECK(read.files.at(0).tensors == file.tensors);
}

TEST_CASE("links, pipes, folders and nothing in place of a checkpoint's files are refused, without waiting",
          "[data][checkpoint]") {
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  const fs::path folder = commit_step(all, 3);
  for (const char* name : {"model.safetensors.index.json", "w1.model.safetensors"}) {
    const fs::path path = folder / name, away = dir.path / name;
    const auto text = [&] { return invalid_text([&] { all_of(Checkpoint(folder.string())); }); };
    fs::rename(path, away);
    CHECK_THAT(text(), Contains(path.string() + ": no such file"));
    fs::create_symlink(away, path);
    CHECK_THAT(text(),
               Contains(path.string() + ": is a symbolic link, expected a file of the checkpoint's own"));
    fs::remove(path);
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK_THAT(text(), Contains(path.string() + ": is not a regular file"));
    fs::remove(path);
    fs::create_directory(path);
    CHECK_THAT(text(), Contains(path.string() + ": is a directory"));
    fs::remove(path);
    fs::rename(away, path);
    CHECK(all_of(Checkpoint(folder.string())).size() == 4);
  }
}

TEST_CASE("pieces of a tensor in several files are put together", "[data][checkpoint]") {
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  Tensor whole = zeros({5, 4}, float32);
  for (int i = 0; i < 20; ++i) whole.data<float>()[i] = static_cast<float>(i);
  struct Part {
    int64_t row, column, rows, columns, more = 0;
  };
  const auto commit = [&](int64_t step, const std::vector<Part>& parts, const Shape& shift = {0, 0}) {
    const std::string folder = all.begin(step);
    std::vector<CheckpointFile> files;
    for (const Part& p : parts) {
      Tensor piece = whole.alias({p.rows, p.columns}, {4, 1}, p.row * 4 + p.column);
      if (p.more) piece = piece + p.more;
      files.push_back(write_checkpoint_file(folder, fmt::format("w{}.model.safetensors", files.size()),
                                            {{"net.w", piece}}, true,
                                            {{"net.w", Shape{p.row + shift[0], p.column + shift[1]}}}));
    }
    all.commit(index_of(step, files));
    return Checkpoint(folder);
  };
  CHECK(bit_equal(commit(1, {{0, 0, 2, 4}, {2, 0, 3, 4}}).tensors("net.", true).at("w"), whole));
  CHECK(bit_equal(
      commit(2, {{3, 1, 2, 3}, {0, 0, 3, 4}, {3, 0, 2, 1}, {1, 1, 0, 2}}).tensors("net.", true).at("w"),
      whole));
  const auto text = [](const Checkpoint& c) { return invalid_text([&] { c.tensors("net.", true); }); };
  CHECK_THAT(text(commit(3, {{0, 0, 2, 4}, {3, 0, 2, 4}})), Contains("hold 16 elements of a tensor [5, 4]"));
  // Copies are taken once, if they are equal.
  CHECK(bit_equal(commit(4, {{0, 0, 5, 4}, {1, 1, 3, 2}}).tensors("net.", true).at("w"), whole));
  CHECK_THAT(text(commit(5, {{0, 0, 3, 4}, {2, 0, 1, 4}, {4, 0, 1, 4}})), Contains("pieces are missing"));
  CHECK_THAT(text(commit(9, {{0, 0, 5, 4}, {1, 1, 3, 2, 1}})), Contains("have other elements there"));
  CHECK_THAT(text(commit(6, {{0, 0, 5, 4}}, {INT64_MAX - 5, INT64_MAX - 4})), Contains("pieces are missing"));
  CHECK_THAT(invalid_text([&] { commit(7, {{0, 0, 5, 4}}, {INT64_MAX - 4, 0}); }), Contains("begins at"));
  CHECK_THAT(invalid_text([&] {
               commit(8, {{0, 0, 5, 4}}, {-1, 0});
             }),
             Contains("expected a number from 0 for each dimension"));

  const auto metadata = Safetensors(checkpoint_path(all.dir(), 1) + "/w1.model.safetensors").metadata();
  CHECK(metadata.at("DCP_VERSION") == "1.0");
  CHECK(metadata.at("DCP_SHARDING_INFO") == "{\"net.w\":{\"saved_offsets\":[2,0]}}");
}

TEST_CASE("a tensor that two files hold, and that is in no pieces, is refused", "[data][checkpoint]") {
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  const std::string folder = all.begin(1);
  const NamedTensors same{{"net.w", zeros({2})}};
  std::vector<CheckpointFile> files{write_checkpoint_file(folder, "w1.model.safetensors", same, true),
                                    write_checkpoint_file(folder, "w2.model.safetensors", same, true)};
  all.commit(index_of(1, files));
  CHECK_THAT(invalid_text([&] { Checkpoint(folder).tensors("net.", true); }),
             Contains("w2.model.safetensors: has \"net.w\", as w1.model.safetensors has"));
  CHECK_THAT(invalid_text([&] { write_checkpoint_file(folder, "../w3", same, true); }),
             Contains("expected a name without folders"));
  CHECK_THAT(invalid_text([&] {
               write_checkpoint_file(folder, "w3", {{"", zeros({1})}}, true);
             }),
             Contains("w3: a tensor of a checkpoint has no name"));
  files[0].name = "../w1.model.safetensors";
  CHECK_THAT(invalid_text([&] { checkpoint_index_text(index_of(1, files)); }),
             Contains("is to have a plain name"));
}

TEST_CASE("Troupe reads folders that PyTorch's distributed checkpoints wrote", "[data][checkpoint]") {
  testing::Process probe(
      {"/usr/bin/env", "python3", "-c",
       "import safetensors, torch.distributed.checkpoint as c; c.HuggingFaceStorageWriter"});
  if (probe.exit_code() != 0)
    return testing::skip_test("this python3 has no safetensors, or no torch that writes them");
  Folder dir;
  testing::Process python({"/usr/bin/env", "python3",
                           std::string(testing::kSourceFolder) + "/tests/data/torch_writes.py",
                           dir.path.string()});
  const int code = python.exit_code();
  INFO(python.output << python.errors);
  REQUIRE(code == 0);
  for (const char* kind : {"whole", "sharded"}) {
    INFO(kind);
    const auto read = read_safetensors_folder((dir.path / kind).string());
    CHECK(read.size() == 2);
    CHECK(read.at("net.weight").shape() == Shape{6, 4});
    for (int i = 0; i < 24; ++i)
      REQUIRE(read.at("net.weight").to_vector<float>()[static_cast<size_t>(i)] == float(i));
    CHECK(read.at("head").to_vector<double>() == std::vector<double>{1.5, -2});
  }
}

TEST_CASE("PyTorch reads the folder of a checkpoint, and puts its pieces together", "[data][checkpoint]") {
  testing::Process probe(
      {"/usr/bin/env", "python3", "-c",
       "import safetensors, torch.distributed.checkpoint as c; c.HuggingFaceStorageWriter"});
  if (probe.exit_code() != 0)
    return testing::skip_test("this python3 has no safetensors, or no torch that writes them");
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  const std::string folder = all.begin(1);
  Tensor whole = zeros({6, 4}, float32);
  for (int i = 0; i < 24; ++i) whole.data<float>()[i] = static_cast<float>(i);
  std::vector<CheckpointFile> files;
  for (const int64_t row : {0, 2}) {
    const int64_t rows = row == 0 ? 2 : 4;
    files.push_back(write_checkpoint_file(folder, fmt::format("w{}.model.safetensors", files.size() + 1),
                                          {{"net.weight", whole.alias({rows, 4}, {4, 1}, row * 4)}}, true,
                                          {{"net.weight", Shape{row, 0}}}));
  }
  files.push_back(
      write_checkpoint_file(folder, "w3.model.safetensors", {{"head", tensor({1.5, -2}, float64)}}, true));
  all.commit(index_of(1, files));
  testing::Process python({"/usr/bin/env", "python3",
                           std::string(testing::kSourceFolder) + "/tests/data/torch_reads.py", folder});
  const int code = python.exit_code();
  INFO(python.output << python.errors);
  CHECK(code == 0);
  CHECK(python.output == "equal\n");
}
