// Files of tokens, as `troupe data` makes them.
#include "tools/data/data.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "data/datasets/token_file.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/oracle.h"
#include "tests/support/skip.h"
#include "tools/data/tokenize.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using tools::tokenize;
using tools::TokenizeOptions;

namespace {

const std::string kGpt2 = std::string(kSourceFolder) + "/tests/oracle/tokenizers/gpt2.json";

// Null: the build has no ICU, and says so.
std::optional<llm::Tokenizer> gpt2() {
  try {
    return llm::Tokenizer(kGpt2);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::unimplemented) throw;
    skip_test("this build has no ICU");
    return {};
  }
}

std::vector<int64_t> ids_in(const std::string& path, int bytes = 2) {
  const datasets::TokenFile file(path, bytes);
  return file.read(0, file.size()).to_vector<int64_t>();
}

}  // namespace

TEST_CASE("text and lines of JSON become tokens, in order, on any number of threads") {
  const auto tokenizer = gpt2();
  if (!tokenizer) return;
  Folder folder;
  const std::string text = "Ein Haus, two dogs. \xF0\x9F\x90\xB6\n\nThe end.\n",
                    out = (folder.path / "o.bin").string();
  const std::string plain = folder.file("a.txt", text);
  std::string lines;
  std::vector<int64_t> expected;
  const auto add = [&](const std::string& document) {
    for (const int64_t id : tokenizer->encode(document, false)) expected.push_back(id);
    if (const auto end = tokenizer->special("<|endoftext|>")) expected.push_back(*end);
  };
  add(text);
  for (int i = 0; i < 500; ++i) {
    const std::string document = "document " + std::to_string(i) + " of many";
    lines += "{\"body\": \"" + document + "\"}\n";
    add(document);
  }
  const std::string json = folder.file("b.jsonl", lines);
  const int64_t threads = GENERATE(1, 4), bytes = GENERATE(0, 4);
  const auto made = tokenize({.files = {plain, json},
                              .tokenizer = kGpt2,
                              .out = out,
                              .field = "body",
                              .bytes = bytes,
                              .threads = threads});
  CHECK(made.documents == 501);
  CHECK(made.bytes == (bytes ? bytes : tokenizer->vocab_size() <= 65536 ? 2 : 4));
  CHECK(ids_in(out, static_cast<int>(made.bytes)) == expected);
  CHECK(made.ids == std::ssize(expected));
}

TEST_CASE("bytes that are no UTF-8 are replaced where that is asked for, else refused") {
  const auto tokenizer = gpt2();
  if (!tokenizer) return;
  Folder folder;
  const std::string out = (folder.path / "o.bin").string(),
                    file = folder.file("a.txt", "caf\xFF \xF0\x9F\x90 end");
  TokenizeOptions options{.files = {file}, .tokenizer = kGpt2, .out = out, .end = "none"};
  CHECK_THAT(error_of([&] { tokenize(options); }).what(), Catch::Contains(file + ", document 1: "));
  options.replace = true;
  options.files = {folder.file("b.jsonl", "{\"text\": \"b\"}\n")};
  CHECK_THAT(error_of([&] { tokenize(options); }).what(), Catch::Contains("--replace is for text files"));
  options.files = {file};
  const auto made = tokenize(options);
  CHECK(ids_in(out, static_cast<int>(made.bytes)) == tokenizer->encode("caf\uFFFD \uFFFD end", false));
}

TEST_CASE("lines of a text are documents where that is asked for, and nothing stands behind them") {
  const auto tokenizer = gpt2();
  if (!tokenizer) return;
  Folder folder;
  const std::string out = (folder.path / "o.bin").string();
  const auto made = tokenize({.files = {folder.file("a.txt", "one two\n\nthree")},
                              .tokenizer = kGpt2,
                              .out = out,
                              .end = "none",
                              .lines = true});
  CHECK(made.documents == 2);
  auto expected = tokenizer->encode("one two", false);
  for (const int64_t id : tokenizer->encode("three", false)) expected.push_back(id);
  CHECK(ids_in(out, static_cast<int>(made.bytes)) == expected);
}

TEST_CASE("what cannot be made into tokens is named, and no file appears") {
  if (!gpt2()) return;
  Folder folder;
  const std::string out = (folder.path / "o.bin").string();
  const auto said = [&](TokenizeOptions options) {
    options.tokenizer = kGpt2, options.out = out;
    return invalid_text([&] { tokenize(options); });
  };
  const std::string json = folder.file("b.jsonl", "{\"text\": \"a\"}\n{\"other\": \"b\"}\n");
  CHECK_THAT(said({.files = {json}}),
             Contains("b.jsonl, document 2: the field \"text\" is not there, expected text"));
  CHECK_THAT(said({.files = {folder.file("c.txt", "a\xFF")}}), Contains("c.txt, document 1: "));
  CHECK_THAT(said({.files = {folder.file("d.txt", "a")}, .end = "<|stop|>"}),
             Contains("no special token of that text"));
  CHECK_THAT(said({.files = {folder.file("d.txt", "a")}, .bytes = 3}),
             Contains("--bytes 3: expected 2 or 4"));
  CHECK_THAT(said({.files = {(folder.path / "none.txt").string()}}), Contains("none.txt"));
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK(tools::data_main({"tokenize"}) == 2);
  CHECK(tools::data_main({"tokenise"}) == 2);
  CHECK(tools::data_main({"count", (folder.path / "none.bin").string()}) == 2);
}
