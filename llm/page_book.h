// Pages of a cache, and which text has which.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

namespace troupe::llm {

/// Hands out pages of equal size to texts that grow. All that have the same calls hand out the same pages.
class PageBook {
 public:
  /// `invalid` unless both are at least 1.
  PageBook(int64_t pages, int64_t page_size);

  /// Gives a text room for so many tokens in all. False, with nothing changed, if there are too few pages.
  bool reserve(int64_t text, int64_t tokens);
  /// Takes all pages of a text back, if it has some.
  void close(int64_t text);
  /// The pages of a text, in the order of its tokens.
  const std::vector<int64_t>& pages_of(int64_t text) const& { return pages_.at(text); }
  std::vector<int64_t> pages_of(int64_t text) && { return pages_.at(text); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t pages() const { return all_; }
  int64_t page_size() const { return page_size_; }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }

 private:
  int64_t all_, page_size_;
  std::vector<int64_t> free_;  // the last one is next
  std::map<int64_t, std::vector<int64_t>> pages_;
};

}  // namespace troupe::llm
