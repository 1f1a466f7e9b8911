#include "llm/byte_pairs.h"

#include <fmt/format.h>

#include <queue>
#include <tuple>

#include "core/base/error.h"

namespace troupe::llm {

void BytePairs::add(std::string bytes, int64_t id) {
  if (bytes.size() == 1) of_byte_[static_cast<unsigned char>(bytes[0])] = id;
  if (!bytes_.emplace(id, bytes).second || !ids_.emplace(std::move(bytes), id).second)
    throw_invalid(fmt::format("token {} is there twice", id));
}

void BytePairs::add_merge(const std::string& left, const std::string& right) {
  const auto a = ids_.find(left), b = ids_.find(right), both = ids_.find(left + right);
  if (a == ids_.end() || b == ids_.end() || both == ids_.end())
    throw_invalid(fmt::format("merge {} is of tokens that are not in the vocabulary", next_rank_));
  merges_.try_emplace({a->second, b->second}, Merge{next_rank_++, both->second});
}

void BytePairs::merge_by_id() {
  for (const auto& [bytes, id] : ids_)
    for (size_t n = 1; n < bytes.size(); ++n) {
      const auto a = ids_.find(bytes.substr(0, n)), b = ids_.find(bytes.substr(n));
      if (a != ids_.end() && b != ids_.end()) merges_.try_emplace({a->second, b->second}, Merge{id, id});
    }
}

void BytePairs::encode(std::string_view piece, std::vector<int64_t>& ids) const {
  if (whole_pieces_)
    if (const auto at = ids_.find(std::string(piece)); at != ids_.end()) return ids.push_back(at->second);
  struct Symbol {
    int64_t id;
    size_t before, after;
  };
  const size_t n = piece.size(), none = n;
  std::vector<Symbol> symbols(n);
  for (size_t i = 0; i < n; ++i) {
    const auto byte = static_cast<unsigned char>(piece[i]);
    if (of_byte_[byte] < 0)
      throw_invalid(fmt::format("[tokenizer] byte {} has no token: is the vocabulary one of bytes?", byte));
    symbols[i] = {of_byte_[byte], i ? i - 1 : none, i + 1};
  }
  // Candidates come by rank, then from left to right. What has changed since then is found when its turn
  // comes.
  using Candidate = std::tuple<int64_t, size_t, int64_t, int64_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](size_t left) {
    if (left == none || symbols[left].after == none) return;
    const int64_t a = symbols[left].id, b = symbols[symbols[left].after].id;
    const auto at = merges_.find({a, b});
    if (at != merges_.end()) candidates.emplace(at->second.rank, left, a, b);
  };
  for (size_t i = 0; i < n; ++i) consider(i);
  while (!candidates.empty()) {
    const auto [rank, left, a, b] = candidates.top();
    candidates.pop();
    const size_t right = symbols[left].after;
    if (symbols[left].id != a || right == none || symbols[right].id != b) continue;
    symbols[left].id = merges_.at({a, b}).id;
    symbols[left].after = symbols[right].after;
    if (symbols[right].after != none) symbols[symbols[right].after].before = left;
    symbols[right].id = -1;  // it is no more
    consider(symbols[left].before), consider(left);
  }
  for (size_t i = 0; i < n; i = symbols[i].after) ids.push_back(symbols[i].id);
}

const std::string* BytePairs::bytes_of(int64_t id) const {
  const auto at = bytes_.find(id);
  return at == bytes_.end() ? nullptr : &at->second;
}

}  // namespace troupe::llm
