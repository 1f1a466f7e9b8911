// Intrusive reference counting for the objects that every operator touches (storages, tensors, graph nodes).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/memory/small_object_pool.h"

namespace troupe {

/// Base of what a Ref<T> owns. Thread-safe count.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  /// retain() of an object that its maker alone knows: without an atomic operation, which takes 5 ns.
  void retain_new() const { count_.store(use_count() + 1, std::memory_order_relaxed); }
  /// Takes a reference unless the object is already being destroyed.
  bool try_retain() const {
    uint32_t n = count_.load(std::memory_order_relaxed);
    while (n != 0)
      if (count_.compare_exchange_weak(n, n + 1, std::memory_order_acquire)) return true;
    return false;
  }
  void release() const {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) const_cast<RefCounted*>(this)->destroy();
  }
  uint32_t use_count() const { return count_.load(std::memory_order_relaxed); }

  static void* operator new(size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* memory, size_t bytes) { pool_free(memory, bytes); }

 protected:
  virtual ~RefCounted() = default;
  /// What happens at count zero.
  virtual void destroy() { delete this; }

 private:
  mutable std::atomic<uint32_t> count_{0};
};

/// Shared owner of a RefCounted object; 8 bytes.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* p) : p_(p) {
    if (p_) p_->retain();
  }
  Ref(const Ref& o) : p_(o.p_) {
    if (p_) p_->retain();
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(const Ref<U>& o) : p_(o.get()) {
    if (p_) p_->retain();
  }
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(Ref<U>&& o)
  noexcept : p_(o.detach()) {}
  ~Ref() {
    if (p_) p_->release();
  }
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }

  /// Takes over a reference that the caller already holds.
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }
  T* detach() { return std::exchange(p_, nullptr); }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const Ref& o) const { return p_ == o.p_; }

 private:
  T* p_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  T* const made = new T(std::forward<Args>(args)...);
  made->retain_new();
  return Ref<T>::adopt(made);
}

}  // namespace troupe
