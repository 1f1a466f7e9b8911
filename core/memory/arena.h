// Memory that other processes of this host can map. Once the process's arena is open, large blocks of the
// allocator lie in it, so that a tensor goes to another process as a place and not as a copy.
#pragma once
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/mutex.h"
#include "core/memory/pages.h"

namespace troupe {

/// A range of addresses over one memory file. The range is much larger than what is ever used: pages are
/// there from take() to give(). Thread-safe.
class Arena {
 public:
  static constexpr size_t kSmallest = size_t{64} << 10;  ///< blocks from here on lie in the process's arena
  static constexpr size_t kLargest = size_t{1} << 30;  ///< and up to here: a peer may have no more at a time

  /// Null, with the reason in `why`, where the system does not give it.
  static std::unique_ptr<Arena> create(size_t bytes, std::string& why);
  ~Arena();
  Arena(const Arena&) = delete;

  /// The process's. Off until then: a program without peers on its host keeps ordinary memory. The first call
  /// decides about size and success. It is never closed.
  static bool open(size_t bytes, std::string& why);
  /// Null until open(), and in a child that fork() made since: there its addresses are those of copies.
  static Arena* of_process();
  /// Whether the address is one of the process's arena; in a child, too.
  static bool has(const void* p);

  /// A page-aligned block that has its pages, of zeros. Null: there is no room, or no memory.
  void* take(size_t size);
  /// `size`: as taken. The pages go back to the system, and the addresses join the free ones beside them.
  void give(void* p, size_t size);

  int descriptor() const { return read_only_.get(); }  ///< what peers are given
  size_t bytes() const { return bytes_; }
  size_t offset_of(const void* p) const {
    return static_cast<size_t>(static_cast<const std::byte*>(p) - base_);
  }
  /// Bytes that have pages.
  size_t resident() const;
  size_t free_ranges() const;

  // Around fork(), for the allocator: a child finds no lock taken, and copies of the blocks that are in use.
  /// `unused`: blocks that were taken and hold nothing, with their sizes.
  void before_fork(std::vector<std::pair<std::byte*, size_t>> unused) TROUPE_AROUND_FORK;
  void after_fork_in_parent() TROUPE_AROUND_FORK;
  void after_fork_in_child() TROUPE_AROUND_FORK;

 private:
  Arena(internal::Descriptor fd, internal::Descriptor read_only, std::byte* base, size_t bytes);
  bool back(std::byte* p, size_t size);

  internal::Descriptor fd_, read_only_;
  std::byte* const base_;
  const size_t bytes_;
  mutable internal::Mutex mutex_;
  std::map<size_t, size_t> free_;  // ranges without pages by offset; no two of them touch
  std::atomic<bool> huge_{true};   // until the system refuses huge pages
  ForkCopies copies_;              // while a fork() is in progress
};

}  // namespace troupe
