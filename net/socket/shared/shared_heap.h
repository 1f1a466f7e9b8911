// Where large buffers go between two processes of one host: the sender copies them into memory that both map,
// the message says where, and what the receiver gets are those very bytes. One copy in all; the kernel has no
// part in it, and the connection is free for other messages meanwhile.
//
//   table    one word per block: 1 while the receiver has it, 0 when it may be used again
//   blocks   sizes are powers of two; their places stay as they are
//
// The sender alone deals out blocks; the receiver's last word on one is the 0 that it stores when the last
// tensor there is gone. The range is much larger than what is ever used: pages are taken when a block is used
// for the first time, and go back to the system when it has not been used for a while.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/memory/storage.h"
#include "net/message.h"
#include "net/socket/loop/fd.h"

namespace troupe::internal::net {

/// The mapped range.
class HeapMemory {
 public:
  static constexpr size_t kBlocks = 4096;
  static constexpr size_t kTable = kBlocks * sizeof(std::atomic<uint32_t>);  ///< the blocks begin behind it
  enum class Blocks { written, read_only };
  /// Null if it cannot be mapped. The table is always written.
  static std::shared_ptr<HeapMemory> map(const Fd& fd, size_t bytes, Blocks access);
  ~HeapMemory();
  HeapMemory(const HeapMemory&) = delete;
  std::atomic<uint32_t>& exported(size_t block) {
    return reinterpret_cast<std::atomic<uint32_t>*>(base_)[block];
  }
  std::byte* at(size_t offset) { return base_ + offset; }
  size_t bytes() const { return bytes_; }

 private:
  HeapMemory(std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_;
  size_t bytes_;
};

/// The sender's side. Thread-safe.
class ExportedHeap {
 public:
  /// A range of `bytes` addresses, of which the receiver has at most `most` bytes at a time. Null where the
  /// system does not give it.
  static std::unique_ptr<ExportedHeap> create(size_t bytes, size_t most);
  const Fd& fd() const { return fd_; }

  struct Place {
    uint64_t word = 0;  ///< what the receiver is told; never 0
    std::byte* data = nullptr;
  };
  /// Room for `size` bytes, the receiver's until it gives them back. Nothing if there is none.
  std::optional<Place> take(size_t size);
  /// The receiver was not told of it.
  void give_back(uint64_t word);
  /// To be called at regular times: gives the pages of blocks that have not been used for several of them
  /// back to the system.
  void trim();
  /// Bytes of all blocks, exported or not, that have pages.
  size_t resident() const;

 private:
  struct Block {
    size_t offset = 0, size = 0;  // a power of two
    size_t backed = 0;            // bytes that have pages
    uint32_t home_since = 0;      // by trims_
  };
  ExportedHeap(std::shared_ptr<HeapMemory> memory, Fd fd, size_t most)
      : memory_(std::move(memory)), fd_(std::move(fd)), most_(most) {}
  void collect();
  void free_block(uint32_t block);
  std::vector<uint32_t>& home(size_t size);
  bool make_block(size_t size);

  const std::shared_ptr<HeapMemory> memory_;
  const Fd fd_;
  const size_t most_;
  mutable std::mutex mutex_;
  size_t end_ = HeapMemory::kTable;  // of what blocks have
  std::vector<Block> blocks_;
  std::array<std::vector<uint32_t>, 64> home_;  // by size; the last one used is the first one used again
  std::vector<uint32_t> lent_;
  size_t lent_bytes_ = 0;
  uint32_t trims_ = 1;
};

/// The receiver's side, which cannot write to blocks. Believes nothing that the sender writes: a place is
/// checked, and what is used as an address or a size is to be copied first, since the sender could change it
/// at any time.
class ImportedHeap {
 public:
  /// Null, with the reason in `why`, if it is no such memory or has more than `most` bytes.
  static std::unique_ptr<ImportedHeap> open(const Fd& fd, size_t most, std::string& why);
  /// The bytes at a place, which go back to the sender with their storage. Throws `invalid` if it is none.
  Ref<Storage> adopt(uint64_t word, size_t size) const;

 private:
  explicit ImportedHeap(std::shared_ptr<HeapMemory> memory) : memory_(std::move(memory)) {}
  const std::shared_ptr<HeapMemory> memory_;  // as long as any storage in it
};

}  // namespace troupe::internal::net
