#include "core/cuda/pinned.h"

#include <array>
#include <bit>
#include <mutex>
#include <vector>

#include "core/base/mutex.h"
#include "core/cuda/runtime.h"

namespace troupe::cuda {
namespace {

constexpr size_t kSmallest = size_t{64} << 10;  // of a block; sizes are powers of two
/// Of a device: pinned memory is taken from all other programs, so there is an end to it.
constexpr size_t kMost = size_t{512} << 20;

using Events = std::vector<cudaEvent_t>;

struct Block {
  void* data = nullptr;
  size_t size = 0;
};

// Of one device; never destroyed, as buffers may outlive main.
class Pool {
 public:
  // Without data if there is none.
  Block take(size_t bytes, Device device) {
    const size_t size = std::bit_ceil(std::max(bytes, kSmallest));
    std::lock_guard lock(mutex_);
    collect(device);
    auto& free = free_of(size);
    Block block{nullptr, size};
    if (!free.empty()) {
      block.data = free.back();
      free.pop_back();
    } else {
      if (size > kMost - taken_) release_cached();
      if (size > kMost - taken_) return {};
      use(device);
      if (cudaHostAlloc(&block.data, size, cudaHostAllocDefault) != cudaSuccess) {
        cudaGetLastError();
        return {};
      }
      taken_ += size;
    }
    in_use_ += size;
    return block;
  }

  // Once the events have come.
  void give(Block block, Events events, Device device) {
    std::lock_guard lock(mutex_);
    leaving_.push_back({block, std::move(events)});
    collect(device);
  }

  cudaEvent_t event(Device device) {
    {
      std::lock_guard lock(mutex_);
      if (!events_.empty()) {
        const cudaEvent_t e = events_.back();
        events_.pop_back();
        return e;
      }
    }
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "making an event", device);
    return made;
  }

  size_t in_use(Device device) {
    std::lock_guard lock(mutex_);
    collect(device);
    return in_use_;
  }

  void release(Device device) {
    std::lock_guard lock(mutex_);
    collect(device);
    release_cached();
  }

 private:
  struct Leaving {
    Block block;
    Events events;
  };

  std::vector<void*>& free_of(size_t size) { return free_[static_cast<size_t>(std::countr_zero(size))]; }

  // A device that has failed keeps its blocks: nobody knows what it still does.
  void collect(Device device) {
    if (leaving_.empty()) return;
    try {
      use(device);
    } catch (const std::exception&) {
      return;
    }
    std::erase_if(leaving_, [&](Leaving& l) {
      while (!l.events.empty()) {
        if (cudaEventQuery(l.events.back()) != cudaSuccess) {
          cudaGetLastError();
          return false;
        }
        events_.push_back(l.events.back());
        l.events.pop_back();
      }
      in_use_ -= l.block.size;
      free_of(l.block.size).push_back(l.block.data);
      return true;
    });
  }

  void release_cached() {
    for (size_t i = 0; i < free_.size(); ++i) {
      for (void* data : free_[i]) {
        if (cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
        taken_ -= size_t{1} << i;
      }
      free_[i].clear();
    }
  }

  internal::Mutex mutex_;
  std::array<std::vector<void*>, 64> free_;  // by size
  std::vector<Leaving> leaving_;
  Events events_;  // that nobody uses
  size_t taken_ = 0, in_use_ = 0;
};

Pool& pool(Device device) {
  static auto* pools = new std::array<Pool, 128>;
  return (*pools)[static_cast<size_t>(device.index)];
}

class CudaPinnedBuffer final : public PinnedBuffer {
 public:
  CudaPinnedBuffer(Block block, size_t bytes, Device device)
      : PinnedBuffer(static_cast<std::byte*>(block.data), bytes), block_(block), device_(device) {}
  ~CudaPinnedBuffer() override {
    if (!in_doubt_) pool(device_).give(block_, std::move(events_), device_);
  }

  void fetch(const std::byte* from) override {
    for (size_t at = 0; at < size(); at += kChunk)
      copy(data() + at, from + at, std::min(kChunk, size() - at), cudaMemcpyDeviceToHost);
  }

  size_t arrived(size_t least) override {
    if (done_ < events_.size()) use(device_);
    while (done_ < events_.size()) {
      const bool wanted = done_ * kChunk < least;
      const cudaError_t e = wanted ? cudaEventSynchronize(events_[done_]) : cudaEventQuery(events_[done_]);
      if (e == cudaErrorNotReady) {
        cudaGetLastError();
        break;
      }
      if (e != cudaSuccess) fail(e, "copying " + std::to_string(size()) + " bytes to the host", device_);
      ++done_;
    }
    return std::min(done_ * kChunk, size());
  }

  void forward(size_t filled) override {
    while (asked_ < filled) {
      const size_t n = std::min(kChunk, size() - asked_);
      if (filled - asked_ < n) return;
      there->written_here();
      copy(there->data() + asked_, data() + asked_, n, cudaMemcpyHostToDevice);
      asked_ += n;
    }
  }

 private:
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    const OnStream stream(device_);
    events_.push_back(pool(device_).event(device_));
    in_doubt_ = true;
    check(cudaMemcpyAsync(to, from, bytes, kind, stream), "copying by way of pinned memory", device_);
    check(cudaEventRecord(events_.back(), stream), "recording an event", device_);
    in_doubt_ = false;
  }

  const Block block_;
  const Device device_;
  Events events_;          // of chunks, in their order
  size_t done_ = 0;        // of them
  size_t asked_ = 0;       // bytes that forward() has asked for
  bool in_doubt_ = false;  // a copy that failed to start, maybe
};

}  // namespace

std::shared_ptr<PinnedBuffer> pinned_buffer(size_t bytes, Device device) {
  const Block block = pool(device).take(bytes, device);
  return block.data ? std::make_shared<CudaPinnedBuffer>(block, bytes, device) : nullptr;
}

size_t pinned_in_use(Device device) { return pool(device).in_use(device); }

void release_pinned(Device device) { pool(device).release(device); }

}  // namespace troupe::cuda
