// The tokens of texts that go through a model next: texts come and go between steps.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llm/page_book.h"
#include "llm/paged_cache.h"
#include "llm/sampling.h"

namespace troupe::llm {

/// What a batch may be made of.
struct BatchLimits {
  CacheOptions cache = {};
  int64_t tokens = 512;  ///< of all texts in a step; longer prompts go in several
};

/// One pass of a model, for each of its ranks.
struct TextStep {
  std::vector<TextTokens> texts;  ///< in the order of their tokens
  std::vector<int64_t> ids;       ///< of all tokens
  std::vector<int64_t> last;      ///< places among them whose logits are wanted
  std::vector<int64_t> closed;    ///< texts that are forgotten before it
};

/// The texts that a model writes, as a state machine: who is in the next step, who has to wait for pages (the
/// text that came last, which is computed again), and who has ended. Not synchronized.
class TextBatch {
 public:
  /// Texts of a model with so many tokens, and so many positions (0: any number).
  TextBatch(int64_t vocab_size, int64_t positions, const BatchLimits& limits);

  /// A text that goes on behind a prompt. Its number. `invalid` for what check() refuses, an empty prompt,
  /// ids outside of the vocabulary, and what neither positions nor pages hold to its end.
  int64_t add(const std::vector<int64_t>& prompt, const GenerateOptions& options);
  /// Nobody wants it any more. Its pages are free in the next step.
  void drop(int64_t text);

  /// Whether no text is to be written.
  bool idle() const { return texts_.empty(); }
  /// The next step; there is one unless it is idle. finish() or fail() comes before the next.
  TextStep plan();
  /// Its logits [wanted, vocab_size]. The texts that got a token, in order.
  std::vector<int64_t> finish(const Tensor& logits);
  /// The step has failed: no text is left.
  void fail();

  /// What was written of a text so far. It is there until take(), or drop().
  std::vector<int64_t> written(int64_t text) const;
  bool ended(int64_t text) const;
  /// Whether it is written, or has ended and was not taken.
  bool knows(int64_t text) const { return texts_.contains(text) || ended_.contains(text); }
  size_t size() const { return texts_.size(); }  ///< texts that are written
  /// Gives what one wrote that has ended, and forgets it.
  std::vector<int64_t> take(int64_t text);
  const PageBook& book() const& { return book_; }
  PageBook book() && { return std::move(book_); }
  size_t waiting() const;  ///< texts that have no pages yet

 private:
  struct Text {
    std::vector<int64_t> tokens;
    size_t prompt = 0;
    int64_t kept = 0, in_step = 0;  // tokens in the cache, and those that come to them
    GenerateOptions options;
    Generator generator;
  };
  bool room_for(int64_t number, int64_t tokens);
  void close(int64_t number);
  bool at_end(const Text& text) const;

  int64_t vocab_size_, positions_;
  BatchLimits limits_;
  PageBook book_;
  int64_t last_number_ = 0;
  std::map<int64_t, Text> texts_, ended_;  // by number: in the order in which they came
  std::vector<int64_t> closed_, wanted_;   // since the last step; in this one
};

}  // namespace troupe::llm
