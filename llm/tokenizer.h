// Text as the tokens of a language model: byte-level tokenizers.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::llm {

/// A byte-level tokenizer, as GPT-2, Llama 3 and Qwen have, and the files of tiktoken. A value; copies share
/// the vocabulary. Const members may be called from several threads.
class Tokenizer {
 public:
  /// A tokenizer.json, or its folder. `invalid`, naming file and field, for another kind of tokenizer, and
  /// for what changes its tokens and is not known here. `unimplemented` where the build has no ICU.
  explicit Tokenizer(const std::string& path);
  /// A file of tiktoken: in each line a token's bytes in base64, and its id. `pattern`: "gpt2", "cl100k"
  /// (Llama 3, too), "qwen", or a regular expression that cuts texts; `special`: tokens that the file does
  /// not have, by their texts.
  static Tokenizer tiktoken(const std::string& file, const std::string& pattern,
                            const std::map<std::string, int64_t>& special = {});

  /// Ids of a text, in UTF-8. Texts of special tokens become these. `with_special`: what the tokenizer puts
  /// around each text, too, such as the token of its beginning. `invalid` for what is no UTF-8.
  std::vector<int64_t> encode(std::string_view text, bool with_special = true) const;
  /// The text of ids; bytes that are no UTF-8 become U+FFFD. `invalid` for an id that there is not.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special = true) const;
  /// The bytes of a token, which may be a part of a character.
  std::string bytes_of(int64_t id) const;
  /// The id of a special token; empty: there is none of that text.
  std::optional<int64_t> special(const std::string& text) const;
  /// One more than the largest id.
  int64_t vocab_size() const;

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// Text of tokens that come one by one: what is not yet a character waits for the rest of it.
class TextStream {
 public:
  explicit TextStream(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  /// What can be shown now.
  std::string add(int64_t id);
  /// The rest, at the end.
  std::string end();

 private:
  Tokenizer tokenizer_;
  std::string waiting_;
};

}  // namespace troupe::llm
