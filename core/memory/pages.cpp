#include "core/memory/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/base/log.h"

namespace troupe {

std::byte* map_shared(int fd, size_t bytes, int protection) {
  void* room =
      ::mmap(nullptr, bytes + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(room);
  auto* const base =
      first + (kHugePageBytes - reinterpret_cast<uintptr_t>(room) % kHugePageBytes) % kHugePageBytes;
  if (::mmap(base, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(room, bytes + kHugePageBytes);
    errno = error;
    return nullptr;
  }
  if (base > first) ::munmap(first, static_cast<size_t>(base - first));
  ::munmap(base + bytes, static_cast<size_t>(first + kHugePageBytes - base));
  ::madvise(base, bytes, MADV_DONTDUMP);  // a dump reads all of it, which takes memory for every page
  ::madvise(base, bytes, MADV_DONTFORK);  // what a child wrote would be seen by others
  return base;
}

std::optional<PageCopy> PageCopy::of(std::byte* at, size_t size) {
  void* own = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return {};
  PageCopy copy(own, at, size);
  ::madvise(own, size, MADV_HUGEPAGE);
  if (::madvise(own, size, kPopulateWrite) != 0 && errno != EINVAL) return {};  // which old kernels say
  std::memcpy(own, at, size);
  return copy;
}

PageCopy::~PageCopy() {
  if (own_) ::munmap(own_, size_);
}

bool PageCopy::move_over(int protection) {
  ::mprotect(own_, size_, protection);
  if (::mremap(own_, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED, at_) == MAP_FAILED) return false;
  own_ = nullptr;
  return true;
}

void ForkCopies::add(std::byte* at, size_t size) {
  wanted_ += size;
  if (refused_) return;
  if (auto copy = PageCopy::of(at, size)) return copies_.push_back(std::move(*copy));
  refused_ = true;
  copies_.clear();
}

bool ForkCopies::move_over(std::byte* base, size_t bytes, int protection) {
  ::mmap(base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  bool moved = !refused_;
  for (PageCopy& copy : copies_) moved = copy.move_over(protection) && moved;
  copies_.clear();
  return moved;
}

size_t ForkCopies::drop() {
  copies_.clear();
  const size_t wanted = std::exchange(wanted_, 0);
  return std::exchange(refused_, false) ? wanted : 0;
}

void warn_of_child_without(size_t bytes) {
  if (bytes)
    internal::log::warning(
        "[cpu] no memory to copy " + std::to_string(bytes) +
        " bytes of large tensors for a child that fork() has made: it dies if it touches them");
}

}  // namespace troupe
