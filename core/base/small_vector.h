// A vector whose first N elements need no memory of their own.
#pragma once
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>

namespace troupe {

/// Like std::vector, for lists that are nearly always short; beyond N elements they move to the heap. Any
/// growth and any move of the vector invalidates references.
template <class T, size_t N>
class SmallVector {
 public:
  using value_type = T;

  SmallVector() = default;
  explicit SmallVector(size_t n) { resize(n); }
  SmallVector(std::initializer_list<T> list) { append(list.begin(), list.end()); }
  template <class Iterator>
  SmallVector(Iterator first, Iterator last) {
    append(first, last);
  }
  SmallVector(const SmallVector& o) { append(o.begin(), o.end()); }
  SmallVector(SmallVector&& o) noexcept { take(o); }
  SmallVector& operator=(const SmallVector& o) {
    if (this != &o) *this = SmallVector(o);
    return *this;
  }
  SmallVector& operator=(SmallVector&& o) noexcept {
    if (this == &o) return *this;
    free();
    take(o);
    return *this;
  }
  ~SmallVector() { free(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ < capacity_) return *std::construct_at(data_ + size_++, std::forward<Args>(args)...);
    T made(std::forward<Args>(args)...);  // before growing: an argument may be an element
    grow(2 * capacity_);
    return *std::construct_at(data_ + size_++, std::move(made));
  }
  void push_back(T value) { emplace_back(std::move(value)); }
  void resize(size_t n) {
    reserve(n);
    while (size_ < n) emplace_back();
    shrink(n);
  }
  /// New elements are copies of `value`.
  void resize(size_t n, const T& value) {
    while (size_ < n) push_back(value);
    shrink(n);
  }
  void clear() { shrink(0); }
  bool operator==(const SmallVector& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

 private:
  T* in_place() { return reinterpret_cast<T*>(memory_); }
  template <class Iterator>
  void append(Iterator first, Iterator last) {
    reserve(static_cast<size_t>(std::distance(first, last)));
    for (; first != last; ++first) emplace_back(*first);
  }
  void shrink(size_t n) {
    std::destroy(data_ + n, data_ + size_);
    size_ = n;
  }
  void grow(size_t capacity) {
    T* moved = std::allocator<T>().allocate(capacity);
    std::uninitialized_move(begin(), end(), moved);
    const size_t size = size_;
    free();
    data_ = moved;
    size_ = size;
    capacity_ = capacity;
  }
  void free() {
    std::destroy(begin(), end());
    if (data_ != in_place()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = in_place();
    size_ = 0;
    capacity_ = N;
  }
  void take(SmallVector& o) {  // into an empty vector without memory
    if (o.data_ == o.in_place()) {
      std::uninitialized_move(o.begin(), o.end(), data_);
      size_ = o.size_;
    } else {
      data_ = std::exchange(o.data_, o.in_place());
      size_ = std::exchange(o.size_, 0);
      capacity_ = std::exchange(o.capacity_, N);
    }
    o.clear();
  }

  alignas(T) std::byte memory_[N * sizeof(T)];
  T* data_ = in_place();
  size_t size_ = 0, capacity_ = N;
};

}  // namespace troupe
