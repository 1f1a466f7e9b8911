#include "core/storage.h"

#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "core/error.h"

namespace troupe {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMinBlock = 64;
constexpr size_t kMaxCachedBlock = size_t{1} << 30;  // larger blocks go back to the system at once
constexpr size_t kMaxCached = size_t{2} << 30;       // bytes kept over all classes

// Four size classes per power of two: at most 25 % of a block is unused.
size_t class_size(size_t bytes) {
  if (bytes <= kMinBlock) return kMinBlock;
  const size_t power = std::bit_floor(bytes - 1);
  const size_t step = std::max(power / 4, kAlignment);
  return (bytes + step - 1) / step * step;
}

size_t class_index(size_t size) {  // of a class_size
  const int power = std::bit_width(size - 1);
  const size_t floor = size_t{1} << (power - 1);
  const size_t quarter = std::max(floor / 4, kAlignment);
  return static_cast<size_t>(power) * 4 + (size - 1 - floor) / quarter;
}

// Free blocks by size class. Page faults of fresh memory cost more than the copy into it, so blocks are kept.
class CachingAllocator {
 public:
  void* allocate(size_t size) {
    {
      std::lock_guard lock(mutex_);
      in_use_ += size;
      auto& blocks = free_[class_index(size)];
      if (!blocks.empty()) {
        void* p = blocks.back();
        blocks.pop_back();
        cached_ -= size;
        return p;
      }
      ++system_allocations_;
    }
    void* p = std::aligned_alloc(kAlignment, size);
    if (!p) {
      release_cached();
      p = std::aligned_alloc(kAlignment, size);
    }
    if (!p) {
      std::lock_guard lock(mutex_);
      in_use_ -= size;
      throw std::bad_alloc();
    }
    return p;
  }

  void deallocate(void* p, size_t size) {
    {
      std::lock_guard lock(mutex_);
      in_use_ -= size;
      if (size <= kMaxCachedBlock && cached_ + size <= kMaxCached) {
        free_[class_index(size)].push_back(p);
        cached_ += size;
        return;
      }
    }
    std::free(p);
  }

  void release_cached() {
    std::lock_guard lock(mutex_);
    for (auto& blocks : free_) {
      for (void* p : blocks) std::free(p);
      blocks.clear();
    }
    cached_ = 0;
  }

  AllocatorStats stats() {
    std::lock_guard lock(mutex_);
    return {in_use_, cached_, system_allocations_};
  }

 private:
  std::mutex mutex_;
  std::vector<void*> free_[64 * 4 + 4];
  size_t in_use_ = 0, cached_ = 0;
  uint64_t system_allocations_ = 0;
};

// Memory belongs to the process, not to a worker. Never destroyed: tensors may outlive main.
CachingAllocator& allocator() {
  static auto* instance = new CachingAllocator;
  return *instance;
}

}  // namespace

Storage::Storage(std::byte* data, size_t size, Device device, std::shared_ptr<void> owner)
    : data_(data), size_(size), device_(device), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (owner_.use_count() == 0) allocator().deallocate(data_, class_size(size_));
}

Ref<Storage> Storage::allocate(size_t bytes, Device device) {
  if (!device.is_cpu())
    throw_error(ErrorKind::unimplemented, "[storage] no allocator for device " + device.str());
  if (bytes > kMaxBytes)
    throw_invalid("[storage] " + std::to_string(bytes) + " bytes asked for; the limit is " +
                  std::to_string(kMaxBytes));
  auto* data = static_cast<std::byte*>(allocator().allocate(class_size(bytes)));
  return Ref<Storage>(new Storage(data, bytes, device, nullptr));
}

Ref<Storage> Storage::wrap(void* data, size_t bytes, std::shared_ptr<void> owner) {
  if (owner.use_count() == 0) throw_invalid("[storage] memory to wrap needs an owner");
  return Ref<Storage>(new Storage(static_cast<std::byte*>(data), bytes, cpu, std::move(owner)));
}

AllocatorStats allocator_stats() { return allocator().stats(); }
void release_cached_memory() { allocator().release_cached(); }

}  // namespace troupe
