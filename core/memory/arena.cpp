#include "core/memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/mutex.h"

namespace troupe {
namespace {

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

internal::Mutex open_mutex;
std::atomic<Arena*> opened{nullptr};  // never destroyed
std::atomic<bool> left_to_parent{false};
// Of `opened`, for has(): the address is compared without a look at the object.
std::atomic<std::byte*> opened_base{nullptr};
std::atomic<size_t> opened_bytes{0};

}  // namespace

Arena::Arena(internal::Descriptor fd, internal::Descriptor read_only, std::byte* base, size_t bytes)
    : fd_(std::move(fd)), read_only_(std::move(read_only)), base_(base), bytes_(bytes), free_{{0, bytes}} {}

Arena::~Arena() { ::munmap(base_, bytes_); }

std::unique_ptr<Arena> Arena::create(size_t bytes, std::string& why) {
  bytes = round_up(bytes, kHugePageBytes);
  const auto refused = [&](const char* what) {
    why = std::string(what) + ": " + std::strerror(errno);
    return nullptr;
  };
  internal::Descriptor fd(::memfd_create("troupe-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return refused("memfd_create");
  // Not F_SEAL_FUTURE_WRITE: holes could not be punched either.
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return refused("sealing a memory file");
  internal::Descriptor read_only(
      ::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only) return refused("opening a memory file for reading");
  std::byte* const base = map_shared(fd.get(), bytes, PROT_READ | PROT_WRITE);
  if (!base) return refused("mmap");
  return std::unique_ptr<Arena>(new Arena(std::move(fd), std::move(read_only), base, bytes));
}

bool Arena::open(size_t bytes, std::string& why) {
  std::lock_guard lock(open_mutex);
  static std::string refusal;
  static bool tried = false;
  if (!std::exchange(tried, true)) {
    auto made = create(bytes, refusal);
    if (made) {
      opened_bytes.store(made->bytes_, std::memory_order_relaxed);
      opened_base.store(made->base_, std::memory_order_release);
      opened.store(made.release(), std::memory_order_release);
    }
  }
  why = refusal;
  return of_process() != nullptr;
}

Arena* Arena::of_process() {
  Arena* arena = opened.load(std::memory_order_acquire);
  return arena && !left_to_parent.load(std::memory_order_relaxed) ? arena : nullptr;
}

bool Arena::has(const void* p) {
  const std::byte* const first = opened_base.load(std::memory_order_acquire);
  return first && p >= first && p < first + opened_bytes.load(std::memory_order_relaxed);
}

void* Arena::take(size_t size) {
  size = round_up(size, kPageBytes);
  const size_t alignment = size >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  std::byte* p = nullptr;
  {
    std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [begin, length] = *it;
      const size_t at = round_up(begin, alignment), end = begin + length;
      if (at >= end || end - at < size) continue;
      free_.erase(it);
      if (at > begin) free_.emplace(begin, at - begin);
      if (at + size < end) free_.emplace(at + size, end - at - size);
      p = base_ + at;
      break;
    }
  }
  if (p && !back(p, size)) give(p, size), p = nullptr;
  return p;
}

// Now, and not when it is written: without memory that would be a signal.
bool Arena::back(std::byte* p, size_t size) {
  const size_t huge = size / kHugePageBytes * kHugePageBytes;
  if (huge && huge_.load(std::memory_order_relaxed)) {
    // A page of each huge one makes it exist; of memory that nobody has touched they cannot be put together.
    bool touched = true;
    for (size_t at = 0; at < huge; at += kHugePageBytes)
      touched &= ::madvise(p + at, kPageBytes, kPopulateWrite) == 0;
    if (touched && ::madvise(p, huge, kCollapse) != 0 && errno == EINVAL)
      huge_.store(false, std::memory_order_relaxed);  // older than Linux 6.1, or denied
  }
  if (::madvise(p, size, kPopulateWrite) == 0) return true;
  if (errno != EINVAL) return false;
  return ::fallocate(fd_.get(), 0, static_cast<off_t>(offset_of(p)), static_cast<off_t>(size)) ==
         0;  // before 5.14
}

void Arena::give(void* p, size_t size) {
  size = round_up(size, kPageBytes);
  size_t begin = offset_of(p);
  ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
              static_cast<off_t>(size));
  std::lock_guard lock(mutex_);
  const auto after = free_.lower_bound(begin);
  if (after != free_.end() && after->first == begin + size) {
    size += after->second;
    free_.erase(after);
  }
  if (const auto next = free_.lower_bound(begin); next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += size;
      return;
    }
  }
  free_.emplace(begin, size);
}

void Arena::before_fork(std::vector<std::pair<std::byte*, size_t>> unused) {
  mutex_.lock();
  for (const auto& [offset, size] : free_) unused.emplace_back(base_ + offset, size);
  unused.emplace_back(base_ + bytes_, 0);
  std::sort(unused.begin(), unused.end());
  std::byte* at = base_;
  for (const auto& [begin, size] : unused) {
    if (begin > at) copies_.add(at, static_cast<size_t>(begin - at));
    at = begin + round_up(size, kPageBytes);
  }
}

void Arena::after_fork_in_parent() {
  const size_t refused = copies_.drop();
  mutex_.unlock();
  warn_of_child_without(refused);
}

void Arena::after_fork_in_child() {
  left_to_parent.store(true, std::memory_order_relaxed);
  copies_.move_over(base_, bytes_, PROT_READ | PROT_WRITE);
  fd_.reset();  // else the memory of a parent that has ended stays
  read_only_.reset();
  mutex_.unlock();
}

size_t Arena::resident() const {
  struct stat info {};
  return ::fstat(fd_.get(), &info) == 0 ? static_cast<size_t>(info.st_blocks) * 512 : 0;
}

size_t Arena::free_ranges() const {
  std::lock_guard lock(mutex_);
  return free_.size();
}

}  // namespace troupe
