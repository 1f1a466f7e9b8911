#include "core/memory/lent.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "core/base/mutex.h"

namespace troupe {
namespace {

struct Lenders {
  internal::Mutex mutex;
  std::vector<std::shared_ptr<Lender>> all;
  std::atomic<bool> any{false};
};
// Never destroyed: tensors may outlive main.
Lenders& lenders() {
  static auto* instance = new Lenders;
  return *instance;
}

}  // namespace

void add_lender(std::shared_ptr<Lender> lender) {
  std::lock_guard lock(lenders().mutex);
  lenders().all.push_back(std::move(lender));
  lenders().any.store(true, std::memory_order_release);
}

void collect_lent() {
  Lenders& l = lenders();
  if (!l.any.load(std::memory_order_acquire)) return;
  std::vector<std::shared_ptr<Lender>> over;  // destroyed without the lock
  std::lock_guard lock(l.mutex);
  std::erase_if(l.all, [&](std::shared_ptr<Lender>& lender) {
    if (lender->collect()) return false;
    over.push_back(std::move(lender));
    return true;
  });
}

size_t lent_bytes() {
  std::lock_guard lock(lenders().mutex);
  size_t sum = 0;
  for (const auto& l : lenders().all) sum += l->lent_bytes();
  return sum;
}

}  // namespace troupe
