// Pages of memory files, and private ones that take their place at the same addresses.
#pragma once
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

inline constexpr size_t kPageBytes = 4096, kHugePageBytes = size_t{2} << 20;
inline constexpr int kPopulateWrite = 23, kCollapse = 25;  // of madvise(), which headers may not have

/// Maps all of a memory file, at a multiple of a huge page, so that such pages are mapped whole; left out of
/// core dumps and of children that fork() makes. Null: errno says why. unmap with munmap().
std::byte* map_shared(int fd, size_t bytes, int protection);

/// Private pages with what lies in a run of others.
class PageCopy {
 public:
  /// `at` and `size`: whole pages, read now. None: there is no memory, which is an error here and not a
  /// signal when they are written.
  static std::optional<PageCopy> of(std::byte* at, size_t size);
  PageCopy(PageCopy&& other) noexcept
      : own_(std::exchange(other.own_, nullptr)), at_(other.at_), size_(other.size_) {}
  PageCopy& operator=(PageCopy&&) = delete;
  ~PageCopy();
  /// Puts the copy where it was copied from, while other threads may read there. False: nothing is changed.
  bool move_over(int protection);

 private:
  PageCopy(void* own, std::byte* at, size_t size) : own_(own), at_(at), size_(size) {}
  void* own_;  // null: moved
  std::byte* at_;
  size_t size_;
};

/// What a child that fork() makes needs of one shared mapping, which it does not have itself: made before,
/// moved to the same addresses in the child, dropped in the parent.
class ForkCopies {
 public:
  void add(std::byte* at, size_t size);
  /// In the child, where [base, base + bytes) was left out. What is there and was not copied cannot be
  /// touched, and no other memory comes there. False: nothing was copied.
  bool move_over(std::byte* base, size_t bytes, int protection);
  /// In the parent: what there was no memory for, in bytes.
  size_t drop();

 private:
  std::vector<PageCopy> copies_;
  size_t wanted_ = 0;
  bool refused_ = false;
};

/// Tells, in the parent, that a child has no copies of so many bytes.
void warn_of_child_without(size_t bytes);

}  // namespace troupe
