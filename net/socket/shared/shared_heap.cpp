#include "net/socket/shared/shared_heap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "core/base/error.h"
#include "net/socket/shared/shared_memory.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSmallest = size_t{64} << 10;
constexpr int kOffsetBits = 48;
constexpr uint32_t kUnused = 8;  // calls of trim()

static_assert(HeapMemory::kTable % kPage == 0 && HeapMemory::kBlocks <= 1 << (64 - kOffsetBits));

constexpr size_t block_of(uint64_t word) { return word >> kOffsetBits; }
constexpr size_t offset_of(uint64_t word) { return word & ((uint64_t{1} << kOffsetBits) - 1); }

}  // namespace

std::shared_ptr<HeapMemory> HeapMemory::map(const Fd& fd, size_t bytes, Blocks access) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (base == MAP_FAILED) return nullptr;
  std::shared_ptr<HeapMemory> memory(new HeapMemory(static_cast<std::byte*>(base), bytes));
  // A dump reads all of the range, which takes memory for every page of it, used or not.
  ::madvise(base, bytes, MADV_DONTDUMP);
  if (access == Blocks::read_only && ::mprotect(memory->at(kTable), bytes - kTable, PROT_READ) != 0)
    return nullptr;
  return memory;
}

HeapMemory::~HeapMemory() { ::munmap(base_, bytes_); }

// ---- the sender's side

std::unique_ptr<ExportedHeap> ExportedHeap::create(size_t bytes, size_t most) {
  bytes = std::max(bytes / kPage * kPage, HeapMemory::kTable + kPage);
  Fd fd = make_shared_memory("troupe-heap", bytes);
  if (!fd) return nullptr;
  auto memory = HeapMemory::map(fd, bytes, HeapMemory::Blocks::written);
  if (!memory) return nullptr;
  return std::unique_ptr<ExportedHeap>(new ExportedHeap(std::move(memory), std::move(fd), most));
}

std::vector<uint32_t>& ExportedHeap::home(size_t size) {
  return home_[static_cast<size_t>(std::countr_zero(size))];
}

std::optional<ExportedHeap::Place> ExportedHeap::take(size_t size) {
  std::lock_guard lock(mutex_);
  const size_t room = std::bit_ceil(std::max(size, kSmallest));
  if (home(room).empty() || lent_bytes_ + room > most_) collect();
  if (lent_bytes_ + room > most_ || (home(room).empty() && !make_block(room))) return {};
  const uint32_t i = home(room).back();
  Block& block = blocks_[i];
  const size_t pages = (size + kPage - 1) / kPage * kPage;
  if (pages > block.backed) {
    // Now, and not when it is written: without memory that would be a signal.
    if (::fallocate(fd_.get(), 0, static_cast<off_t>(block.offset + block.backed),
                    static_cast<off_t>(pages - block.backed)) != 0)
      return {};
    block.backed = pages;
  }
  home(room).pop_back();
  lent_bytes_ += room;
  lent_.push_back(i);
  memory_->exported(i).store(1, std::memory_order_relaxed);  // who is told of it sees this
  return Place{uint64_t{i} << kOffsetBits | block.offset, memory_->at(block.offset)};
}

// With mutex_. The block is at home.
bool ExportedHeap::make_block(size_t size) {
  if (blocks_.size() == HeapMemory::kBlocks || size > memory_->bytes() - end_) return false;
  home(size).push_back(static_cast<uint32_t>(blocks_.size()));
  blocks_.push_back({.offset = end_, .size = size});
  end_ += size;
  return true;
}

// With mutex_. What the receiver has given back.
void ExportedHeap::collect() {
  std::erase_if(lent_, [&](uint32_t i) {
    if (memory_->exported(i).load(std::memory_order_acquire)) return false;
    free_block(i);
    return true;
  });
}

// With mutex_.
void ExportedHeap::free_block(uint32_t i) {
  Block& b = blocks_[i];
  b.home_since = trims_;
  lent_bytes_ -= b.size;
  home(b.size).push_back(i);
}

void ExportedHeap::give_back(uint64_t word) { memory_->exported(block_of(word)).store(0); }

void ExportedHeap::trim() {
  std::lock_guard lock(mutex_);
  collect();
  ++trims_;
  for (const auto& home : home_)
    for (const uint32_t i : home) {
      Block& b = blocks_[i];
      if (!b.backed || trims_ - b.home_since < kUnused) continue;
      if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(b.offset),
                      static_cast<off_t>(b.backed)) == 0)
        b.backed = 0;
    }
}

size_t ExportedHeap::resident() const {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const Block& b : blocks_) bytes += b.backed;
  return bytes;
}

// ---- the receiver's side

std::unique_ptr<ImportedHeap> ImportedHeap::open(const Fd& fd, size_t most, std::string& why) {
  const size_t size = shared_memory_size(fd, why);
  if (!size) return nullptr;
  if (size <= HeapMemory::kTable || size > most)
    return why = fmt::format("it has {} bytes; expected {} to {}", size, HeapMemory::kTable + 1, most),
           nullptr;
  auto memory = HeapMemory::map(fd, size, HeapMemory::Blocks::read_only);
  if (!memory) return why = "it cannot be mapped: " + errno_text(errno), nullptr;
  return std::unique_ptr<ImportedHeap>(new ImportedHeap(std::move(memory)));
}

Ref<Storage> ImportedHeap::adopt(uint64_t word, size_t size) const {
  const size_t block = block_of(word), offset = offset_of(word);
  if (block >= HeapMemory::kBlocks || offset < HeapMemory::kTable || offset % kPage != 0 ||
      offset > memory_->bytes() || size > memory_->bytes() - offset)
    throw_invalid(fmt::format("[net] a buffer of {} bytes at {} of shared memory that has {}", size, offset,
                              memory_->bytes()));
  std::shared_ptr<void> exported(memory_->at(offset), [memory = memory_, block](void*) {
    memory->exported(block).store(0, std::memory_order_release);
  });
  return Storage::borrow(memory_->at(offset), size, std::move(exported));
}

}  // namespace troupe::internal::net
