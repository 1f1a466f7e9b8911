// Tokens of 10 MB of text in 22 languages, beside those of PyPI's tokenizers and tiktoken.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "llm/text_pieces.h"
#include "llm/tokenizer.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/oracle.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

// What tokenizers_write.py wrote: numbers of 4 bytes, and so many elements of a type.
class Elements {
 public:
  explicit Elements(std::string all) : all_(std::move(all)) {}
  bool more() const { return at_ < all_.size(); }
  std::string text() { return bytes(number()); }
  std::vector<int64_t> ids() {
    std::vector<int64_t> out(number());
    for (int64_t& id : out) id = number();
    return out;
  }

 private:
  uint32_t number() {
    const std::string four = bytes(4);
    uint32_t out;
    std::memcpy(&out, four.data(), 4);
    return out;
  }
  std::string bytes(size_t count) {
    if (at_ + count > all_.size()) FAIL("the file ends within an element");
    at_ += count;
    return all_.substr(at_ - count, count);
  }
  std::string all_;
  size_t at_ = 0;
};

// The number of the first text of which a tokenizer makes other ids; -1 if there is none.
int64_t first_difference(const llm::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                         const std::vector<std::vector<int64_t>>& expected) {
  std::vector<int64_t> wrong(2, -1);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < texts.size() && wrong[t] < 0; i += wrong.size())
        if (tokenizer.encode(texts[i], false) != expected[i]) wrong[t] = static_cast<int64_t>(i);
    });
  for (std::thread& t : threads) t.join();
  return wrong[0] < 0 || (wrong[1] >= 0 && wrong[1] < wrong[0]) ? wrong[1] : wrong[0];
}

}  // namespace

TEST_CASE("10 MB of text in 22 languages become the tokens of Hugging Face's tokenizers and of tiktoken") {
  if (std::system("python3 -c 'import tokenizers, tiktoken' 2>/dev/null") != 0)
    return skip_test("PyPI's tokenizers and tiktoken are not installed");
  try {
    llm::Tokenizer(std::string(kOracleFolder) + "/tokenizers/gpt2.json");
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::unimplemented) throw;
    return skip_test("this build has no ICU");
  }
  const Folder folder;
  Process python({"/usr/bin/env", "python3", std::string(kSourceFolder) + "/tests/llm/tokenizers_write.py",
                  folder.path.string(), "10"});
  const int code = python.exit_code();
  INFO(python.output << python.errors);
  REQUIRE(code == 0);
  std::vector<std::string> texts;
  size_t bytes = 0, broken = 0;
  for (Elements all(content(folder.path / "texts.bin")); all.more();) {
    const std::string raw = all.text();
    texts.push_back(llm::as_utf8(raw));
    bytes += raw.size();
    broken += texts.back() != raw;
  }
  CHECK((bytes >= 10 << 20 && broken > 50));
  for (const std::string name : {"gpt2", "cl100k"}) {
    const auto ids_in = [&](const std::string& file) {
      std::vector<std::vector<int64_t>> out;
      for (Elements all(content(folder.path / file)); all.more();) out.push_back(all.ids());
      REQUIRE(out.size() == texts.size());
      return out;
    };
    const auto compare = [&](const char* of, const llm::Tokenizer& tokenizer, const std::string& file) {
      const auto expected = ids_in(file);
      const int64_t wrong = first_difference(tokenizer, texts, expected);
      CAPTURE(name, of, wrong);
      if (wrong >= 0) {
        const auto at = static_cast<size_t>(wrong);
        CHECK(tokenizer.encode(texts[at], false) == expected[at]);
      }
      CHECK(wrong == -1);
      for (size_t i = 0; i < texts.size(); i += 97) CHECK(tokenizer.decode(expected[i]) == texts[i]);
      // Ids that end within a character: what is not whole is U+FFFD.
      for (size_t i = 0; i < texts.size(); i += 101) {
        const std::vector<int64_t> part(expected[i].begin() + 1, expected[i].begin() + 2);
        std::string raw = tokenizer.bytes_of(part[0]);
        CHECK(tokenizer.decode(part) == llm::as_utf8(raw));
      }
    };
    compare("tokenizers", llm::Tokenizer((folder.path / (name + ".json")).string()), name + ".hf.bin");
    compare("tiktoken", llm::Tokenizer::tiktoken((folder.path / (name + ".tiktoken")).string(), name),
            name + ".tiktoken.bin");
  }
  CHECK_THAT(
      invalid_text([&] { (void)llm::Tokenizer((folder.path / "gpt2.json").string()).encode("a\xff"); }),
      Catch::Contains("no UTF-8"));
}
