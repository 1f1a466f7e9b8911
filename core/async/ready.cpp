#include "core/async/ready.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace troupe {
namespace {

long futex(const std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* end) {
  return ::syscall(SYS_futex, &word, operation, value, end, nullptr, FUTEX_BITSET_MATCH_ANY);
}

// An absolute time of CLOCK_MONOTONIC, which is the clock of TimePoint. Null: no end.
const timespec* until(TimePoint end, timespec& out) {
  if (end == TimePoint::max()) return nullptr;
  const auto ns = std::max<int64_t>(end.time_since_epoch().count(), 0);
  out.tv_sec = ns / 1'000'000'000;
  out.tv_nsec = ns % 1'000'000'000;
  return &out;
}

}  // namespace

void Ready::set() {
  if (word_.fetch_or(kSet) & ~kSet) futex(word_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

bool Ready::wait_until(TimePoint end) const {
  if (is_set()) return true;
  timespec t;
  const timespec* limit = until(end, t);
  uint32_t now = word_.fetch_add(kSleeper) + kSleeper;
  while (!(now & kSet)) {
    if (futex(word_, FUTEX_WAIT_BITSET_PRIVATE, now, limit) != 0 && errno == ETIMEDOUT) break;
    now = word_.load();
  }
  return word_.fetch_sub(kSleeper) & kSet;
}

bool Ready::wait_with(const std::atomic<uint32_t>& other, uint32_t value, TimePoint end) const {
  static std::atomic<bool> missing{false};
  if (missing.load(std::memory_order_relaxed)) return false;
  const uint32_t now = word_.fetch_add(kSleeper) + kSleeper;
  futex_waitv words[2]{};
  words[0].uaddr = reinterpret_cast<uintptr_t>(&word_);
  words[0].val = now;
  words[0].flags = FUTEX_32 | FUTEX_PRIVATE_FLAG;
  words[1].uaddr = reinterpret_cast<uintptr_t>(&other);
  words[1].val = value;
  words[1].flags = FUTEX_32;
  timespec t;
  const bool waited = now & kSet ||
                      ::syscall(SYS_futex_waitv, words, 2, 0, until(end, t), CLOCK_MONOTONIC) >= 0 ||
                      errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT;
  word_.fetch_sub(kSleeper);
  if (!waited) missing.store(true, std::memory_order_relaxed);  // refused: it will be the next time, too
  return waited;
}

void wake_who_waits_for(const std::atomic<uint32_t>& shared) { futex(shared, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace troupe
