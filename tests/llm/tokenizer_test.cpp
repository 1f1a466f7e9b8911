// Texts as tokens: what PyPI's tokenizers make of the same files.
#include "llm/tokenizer.h"

#include <catch2/catch.hpp>

#include <fstream>

#include "llm/byte_pairs.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/oracle.h"
#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::string file_of(const std::string& name) {
  return std::string(kSourceFolder) + "/tests/oracle/tokenizers/" + name;
}

// Null: the build has no ICU, and says so.
std::optional<llm::Tokenizer> opened(const std::string& name) {
  try {
    return llm::Tokenizer(file_of(name));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::unimplemented) throw;
    skip_test("this build has no ICU");
    return {};
  }
}

}  // namespace

TEST_CASE("texts become the tokens that other programs make of them, and tokens become texts") {
  const std::string name = GENERATE("gpt2", "llama3", "qwen2");
  const auto tokenizer = opened(name + ".json");
  if (!tokenizer) return;
  const nlohmann::json texts = read_oracle("tokenizers/texts.json");
  for (const auto& each : texts.at(name)) {
    const std::string text = each.at("text");
    CAPTURE(name, text);
    CHECK(tokenizer->encode(text, false) == each.at("ids").get<std::vector<int64_t>>());
    const auto ids = tokenizer->encode(text);
    CHECK(ids == each.at("special").get<std::vector<int64_t>>());
    CHECK(tokenizer->decode(ids, false) == each.at("decoded").get<std::string>());
    CHECK(tokenizer->decode(ids) == each.at("skipped").get<std::string>());
    llm::TextStream stream(*tokenizer);
    std::string streamed;
    for (const int64_t id : ids) streamed += stream.add(id);
    CHECK(streamed + stream.end() == tokenizer->decode(ids, false));
  }
  CHECK(tokenizer->vocab_size() == tokenizer->special("<|end|>").value() + 1);
}

TEST_CASE("a file of tiktoken gives the same tokens as the tokenizer that it came from") {
  const auto tokenizer = opened("gpt2.json");
  if (!tokenizer) return;
  const auto same = llm::Tokenizer::tiktoken(
      file_of("gpt2.tiktoken"), "gpt2",
      {{"<|start|>", *tokenizer->special("<|start|>")}, {"<|end|>", *tokenizer->special("<|end|>")}});
  const nlohmann::json texts = read_oracle("tokenizers/texts.json");
  for (const auto& each : texts.at("gpt2")) {
    const std::string text = each.at("text");
    CAPTURE(text);
    CHECK(same.encode(text) == tokenizer->encode(text));
  }
}

TEST_CASE("characters that come in several tokens are shown when they are whole") {
  const auto tokenizer = opened("gpt2.json");
  if (!tokenizer) return;
  llm::TextStream stream(*tokenizer);
  std::vector<std::string> shown;
  for (const int64_t id : tokenizer->encode("\xf0\x9f\x98\x80!")) shown.push_back(stream.add(id));
  REQUIRE(shown.size() == 5);
  CHECK(shown == std::vector<std::string>{"", "", "", "\xf0\x9f\x98\x80", "!"});
  CHECK(stream.add(tokenizer->encode("\xf0\x9f\x98\x80")[0]).empty());
  CHECK(stream.end() == "\xef\xbf\xbd");
  CHECK(tokenizer->decode({tokenizer->encode("\xf0\x9f\x98\x80")[0], tokenizer->encode("a")[0]}) ==
        "\xef\xbf\xbd"
        "a");
}

TEST_CASE("pairs are merged by rank, from left to right") {
  llm::BytePairs pairs;
  int64_t id = 0;
  for (const char* token : {"a", "b", "ab", "aa", "aab"}) pairs.add(token, id++);
  pairs.add_merge("a", "a"), pairs.add_merge("a", "b"), pairs.add_merge("aa", "b");
  const auto encode = [&](const char* text) {
    std::vector<int64_t> ids;
    pairs.encode(text, ids);
    return ids;
  };
  CHECK(encode("aaab") == std::vector<int64_t>{3, 2});  // aa, then ab: the first pair from the left
  CHECK(encode("aab") == std::vector<int64_t>{4});
  CHECK(encode("baaaaab") == std::vector<int64_t>{1, 3, 3, 2});
  CHECK(encode("") == std::vector<int64_t>{});
  CHECK_THAT(error_of([&] { encode("c"); }).what(), Catch::Contains("byte 99 has no token"));
}

TEST_CASE("tokenizers of other kinds are refused, by file and field") {
  if (!opened("gpt2.json")) return;
  const nlohmann::json good = nlohmann::json::parse(std::ifstream(file_of("llama3.json")));
  const auto refused = [&](const std::function<void(nlohmann::json&)>& change, const std::string& text) {
    const Folder folder;
    nlohmann::json bad = good;
    change(bad);
    std::ofstream(folder.path / "tokenizer.json") << bad.dump();
    const auto error = error_of([&] { llm::Tokenizer(folder.path.string()); });
    CHECK(error.kind() == ErrorKind::invalid);
    CHECK_THAT(error.what(), Catch::Contains("tokenizer.json"));
    CHECK_THAT(error.what(), Catch::Contains(text));
  };
  refused([](auto& j) { j["model"]["type"] = "Unigram"; }, "type is \"Unigram\", expected \"BPE\"");
  refused([](auto& j) { j["model"]["byte_fallback"] = true; }, "a tokenizer of SentencePiece");
  refused([](auto& j) { j["model"]["dropout"] = 0.1; }, "dropout is 0.1, expected null");
  refused([](auto& j) { j["model"]["merges"][3] = "ab"; }, "two tokens with a space between");
  refused(
      [](auto& j) {
        j["model"]["merges"][3] = {"zq", "qz"};
      },
      "merge 3 is of tokens that are not in the vocabulary");
  refused(
      [](auto& j) {
        j["normalizer"] = {{"type", "Lowercase"}};
      },
      "type is \"Lowercase\", expected \"NFC\"");
  refused([](auto& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "type is \"Metaspace\"");
  refused([](auto& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; },
          "the regular expression (a");
  refused([](auto& j) { j["added_tokens"][0]["lstrip"] = true; }, "lstrip is true, expected false");
  const Folder folder;
  std::ofstream(folder.path / "bad.tiktoken") << "IQ== 0\nIg==\n";
  CHECK_THAT(
      error_of([&] { llm::Tokenizer::tiktoken((folder.path / "bad.tiktoken").string(), "gpt2"); }).what(),
      Catch::Contains("line 2 is \"Ig==\", expected a token in base64 and its id"));
  CHECK_THAT(error_of([&] { opened("gpt2.json")->encode("\xff"); }).what(), Catch::Contains("no UTF-8"));
  CHECK_THAT(error_of([&] { (void)opened("gpt2.json")->decode({5000}); }).what(),
             Catch::Contains("there is no token 5000"));
}
