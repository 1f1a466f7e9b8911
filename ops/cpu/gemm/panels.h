// B of a product, or a part of it, in panels of columns that lie in the order in which tiles read them.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/mutex.h"
#include "core/tensor/creation.h"

namespace troupe::ops::on_cpu {

/// Panels that several threads share: each is packed once, when it is first needed.
template <class T>
class Panels {
 public:
  /// `count` panels of `size` numbers. whole: there is one for every part of B, and they stay.
  Panels(int64_t count, int64_t size, bool whole)
      : count_(count),
        size_(size),
        whole_(whole),
        memory_(empty({count * size + (count + 3) / 4}, sizeof(T) == 8 ? float64 : float32)) {
    clear();
  }
  bool whole() const { return whole_; }
  size_t bytes() const { return memory_.nbytes(); }
  void clear() {
    for (int64_t i = 0; i < count_; ++i) state(i).store(kNone, std::memory_order_relaxed);
  }
  bool has(int64_t i) const { return state(i).load(std::memory_order_relaxed) != kNone; }
  /// Panel i; pack(to) if nobody has done so.
  template <class F>
  const T* get(int64_t i, const F& pack) {
    const auto at = state(i);
    T* panel = memory_.data<T>() + i * size_;
    for (uint8_t now; (now = at.load(std::memory_order_acquire)) != kReady;) {
      if (now == kNone && at.compare_exchange_strong(now, kBusy, std::memory_order_relaxed)) {
        pack(panel);
        at.store(kReady, std::memory_order_release);
      } else {
        std::this_thread::yield();  // it takes some microseconds
      }
    }
    return panel;
  }

 private:
  static constexpr uint8_t kNone = 0, kBusy = 1, kReady = 2;
  // A byte for each, behind them all.
  std::atomic_ref<uint8_t> state(int64_t i) const {
    return std::atomic_ref(reinterpret_cast<uint8_t*>(memory_.data<T>() + count_ * size_)[i]);
  }
  int64_t count_, size_;
  bool whole_;
  Tensor memory_;
};

/// A matrix that is B of many products, packed when it is first needed. Thread-safe.
class PackedMatrix {
 public:
  enum class Form : uint8_t { tiles, strips };  ///< of gemm_tiles, of gemm_amx

  Panels<float>& panels(Form form, int64_t count, int64_t size) {
    std::lock_guard lock(mutex_);
    auto& panels = form == Form::tiles ? tiles_ : strips_;
    return panels ? *panels : panels.emplace(count, size, true);
  }
  size_t bytes() const {
    std::lock_guard lock(mutex_);
    return (tiles_ ? tiles_->bytes() : 0) + (strips_ ? strips_->bytes() : 0);
  }

 private:
  mutable troupe::internal::Mutex mutex_;
  std::optional<Panels<float>> tiles_, strips_;
};

}  // namespace troupe::ops::on_cpu
