#include "llm/page_book.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::llm {

PageBook::PageBook(int64_t pages, int64_t page_size) : all_(pages), page_size_(page_size) {
  if (pages < 1 || page_size < 1)
    throw_invalid(fmt::format("[cache] {} pages of {} tokens: expected at least 1 of 1", pages, page_size));
  for (int64_t p = pages; p-- > 0;) free_.push_back(p);
}

bool PageBook::reserve(int64_t text, int64_t tokens) {
  const auto at = pages_.find(text);
  const int64_t has = at == pages_.end() ? 0 : static_cast<int64_t>(at->second.size());
  const int64_t more = pages_for(tokens) - has;
  if (more > free_pages()) return false;
  std::vector<int64_t>& own = pages_[text];
  for (int64_t i = 0; i < more; ++i) own.push_back(free_.back()), free_.pop_back();
  return true;
}

void PageBook::close(int64_t text) {
  const auto at = pages_.find(text);
  if (at == pages_.end()) return;
  for (auto p = at->second.rbegin(); p != at->second.rend(); ++p) free_.push_back(*p);
  pages_.erase(at);
}

}  // namespace troupe::llm
