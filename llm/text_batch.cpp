#include "llm/text_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "ops/view.h"

namespace troupe::llm {

TextBatch::TextBatch(int64_t vocab_size, int64_t positions, const BatchLimits& limits)
    : vocab_size_(vocab_size),
      positions_(positions),
      limits_(limits),
      book_(limits.cache.pages, limits.cache.page_size) {
  if (limits.tokens < 1)
    throw_invalid(fmt::format("[generate] a step of {} tokens: expected at least 1", limits.tokens));
}

int64_t TextBatch::add(const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  check(options);
  if (prompt.empty())
    throw_invalid("[generate] the prompt is empty: give at least one token, such as that of the beginning");
  for (const int64_t id : prompt)
    if (id < 0 || id >= vocab_size_)
      throw_invalid(fmt::format(
          "[generate] the prompt has token {}, and the model has {}: is the tokenizer another model's?", id,
          vocab_size_));
  const auto given = static_cast<int64_t>(prompt.size()), all = given + options.max_new_tokens;
  if (positions_ && all > positions_)
    throw_invalid(fmt::format(
        "[generate] a prompt of {} tokens and max_new_tokens of {} are more than the model's {} positions",
        given, options.max_new_tokens, positions_));
  if (book_.pages_for(all) > book_.pages())
    throw_invalid(fmt::format(
        "[generate] a prompt of {} tokens and max_new_tokens of {} are more than the cache, {} pages of {}",
        given, options.max_new_tokens, book_.pages(), book_.page_size()));
  texts_[++last_number_] = {prompt, prompt.size(), 0, 0, options, Generator(options.seed)};
  return last_number_;
}

void TextBatch::close(int64_t number) { book_.close(number), closed_.push_back(number); }

void TextBatch::drop(int64_t number) {
  ended_.erase(number);
  if (texts_.erase(number)) close(number);
}

// The text that came last gives its pages back where they are short, and is computed again later.
bool TextBatch::room_for(int64_t number, int64_t tokens) {
  while (!book_.reserve(number, tokens)) {
    auto last = std::find_if(texts_.rbegin(), texts_.rend(), [](const auto& t) { return t.second.kept > 0; });
    if (last == texts_.rend() || last->first <= number) return false;
    close(last->first);
    last->second.kept = 0;
  }
  return true;
}

TextStep TextBatch::plan() {
  TextStep step;
  wanted_.clear();
  int64_t budget = limits_.tokens;
  const auto take_in = [&](int64_t number, Text& text) {
    const auto all = static_cast<int64_t>(text.tokens.size());
    text.in_step = std::min(budget, all - text.kept);
    budget -= text.in_step;
    step.texts.push_back({number, text.in_step});
    const auto begin = text.tokens.begin() + text.kept;
    step.ids.insert(step.ids.end(), begin, begin + text.in_step);
    if (text.kept + text.in_step < all) return;
    step.last.push_back(static_cast<int64_t>(step.ids.size()) - 1);
    wanted_.push_back(number);
  };
  for (auto& [number, text] : texts_) text.in_step = 0;
  for (auto& [number, text] : texts_) {  // those that are under way
    if (text.kept == 0 || budget == 0) continue;
    if (room_for(number, static_cast<int64_t>(text.tokens.size())))
      take_in(number, text);
    else
      close(number), text.kept = 0;
  }
  for (auto& [number, text] : texts_) {  // newcomers, in turn
    if (text.kept > 0 || budget == 0) continue;
    if (!book_.reserve(number, static_cast<int64_t>(text.tokens.size()))) break;
    take_in(number, text);
  }
  step.closed = std::exchange(closed_, {});
  return step;
}

bool TextBatch::at_end(const Text& t) const {
  if (static_cast<int64_t>(t.tokens.size() - t.prompt) >= t.options.max_new_tokens) return true;
  return std::ranges::any_of(t.options.stop, [&](const std::vector<int64_t>& stop) {
    return t.tokens.size() - t.prompt >= stop.size() &&
           std::equal(stop.rbegin(), stop.rend(), t.tokens.rbegin());
  });
}

std::vector<int64_t> TextBatch::finish(const Tensor& logits) {
  for (auto& [number, text] : texts_) text.kept += std::exchange(text.in_step, 0);
  std::vector<int64_t> got;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const auto at = texts_.find(wanted_[i]);
    if (at == texts_.end()) continue;  // it was dropped
    Text& text = at->second;
    text.tokens.push_back(sample(logits.select(0, static_cast<int64_t>(i)), text.options, text.generator));
    got.push_back(at->first);
    if (!at_end(text)) continue;
    close(at->first);
    ended_.insert(texts_.extract(at));
  }
  wanted_.clear();
  return got;
}

void TextBatch::fail() {
  for (const auto& [number, text] : texts_) close(number);
  texts_.clear(), wanted_.clear();
}

std::vector<int64_t> TextBatch::written(int64_t number) const {
  const auto at = texts_.find(number);
  const Text& text = at != texts_.end() ? at->second : ended_.at(number);
  return {text.tokens.begin() + static_cast<std::ptrdiff_t>(text.prompt), text.tokens.end()};
}

bool TextBatch::ended(int64_t number) const { return ended_.contains(number); }

std::vector<int64_t> TextBatch::take(int64_t number) {
  std::vector<int64_t> out = written(number);
  ended_.erase(number);
  return out;
}

size_t TextBatch::waiting() const {
  return static_cast<size_t>(std::ranges::count_if(texts_, [](const auto& t) { return t.second.kept == 0; }));
}

}  // namespace troupe::llm
