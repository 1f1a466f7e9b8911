#include "llm/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "llm/text_pieces.h"
#include "llm/tokenizer_file.h"

namespace troupe::llm {

struct Tokenizer::State {
  explicit State(TokenizerFile file)
      : pairs(std::move(file.pairs)),
        pieces(file.pattern, file.composed, file.what),
        before(std::move(file.before)),
        after(std::move(file.after)),
        size(file.size) {
    for (auto& [text, id, special] : file.added) {
      added[text] = id, added_texts[id] = text;
      if (special) skipped.push_back(id);
      size = std::max(size, id + 1);
    }
  }

  // The first special token in a text, the longest of those that begin there; npos: there is none.
  std::pair<size_t, const std::pair<const std::string, int64_t>*> first_added(std::string_view text) const {
    size_t first = std::string_view::npos;
    const std::pair<const std::string, int64_t>* found = nullptr;
    for (const auto& each : added) {
      const size_t at = each.first.empty() ? std::string_view::npos : text.find(each.first);
      if (at == std::string_view::npos) continue;
      if (at < first || (at == first && each.first.size() > found->first.size())) first = at, found = &each;
    }
    return {first, found};
  }

  BytePairs pairs;
  TextPieces pieces;
  std::map<std::string, int64_t> added;
  std::map<int64_t, std::string> added_texts;
  std::vector<int64_t> skipped, before, after;
  int64_t size;
};

Tokenizer::Tokenizer(const std::string& path)
    : state_(std::make_shared<const State>(read_tokenizer_json(path))) {}

Tokenizer Tokenizer::tiktoken(const std::string& file, const std::string& pattern,
                              const std::map<std::string, int64_t>& special) {
  return Tokenizer(std::make_shared<const State>(read_tiktoken(file, pattern, special)));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text, bool with_special) const {
  std::vector<int64_t> ids;
  if (with_special) ids = state_->before;
  while (!text.empty()) {
    const auto [at, found] = state_->first_added(text);
    for (const std::string& piece : state_->pieces.of(text.substr(0, at))) state_->pairs.encode(piece, ids);
    if (!found) break;
    ids.push_back(found->second);
    text.remove_prefix(at + found->first.size());
  }
  if (with_special) ids.insert(ids.end(), state_->after.begin(), state_->after.end());
  return ids;
}

std::string Tokenizer::bytes_of(int64_t id) const {
  if (const auto at = state_->added_texts.find(id); at != state_->added_texts.end()) return at->second;
  if (const std::string* bytes = state_->pairs.bytes_of(id)) return *bytes;
  throw_invalid(fmt::format("[tokenizer] there is no token {}: ids are below {}", id, state_->size));
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const int64_t id : ids)
    if (!skip_special || std::ranges::find(state_->skipped, id) == state_->skipped.end())
      bytes += bytes_of(id);
  return as_utf8(bytes);
}

std::optional<int64_t> Tokenizer::special(const std::string& text) const {
  const auto at = state_->added.find(text);
  return at == state_->added.end() ? std::nullopt : std::optional(at->second);
}

int64_t Tokenizer::vocab_size() const { return state_->size; }

// A character has at most four bytes: up to three of them may wait for the rest.
std::string TextStream::add(int64_t id) {
  waiting_ += tokenizer_.bytes_of(id);
  size_t whole = waiting_.size();
  for (size_t back = 1; back <= std::min<size_t>(3, waiting_.size()); ++back) {
    const auto byte = static_cast<unsigned char>(waiting_[waiting_.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;  // it is not the first of a character
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (length > back) whole = waiting_.size() - back;
    break;
  }
  const std::string out = as_utf8(std::string_view(waiting_).substr(0, whole));
  waiting_.erase(0, whole);
  return out;
}

std::string TextStream::end() { return as_utf8(std::exchange(waiting_, {})); }

}  // namespace troupe::llm
