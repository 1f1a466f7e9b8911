// Sizes and strides of a tensor.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace troupe {

/// Most dimensions that a tensor can have.
inline constexpr int kMaxDims = 8;

/// A short list of integers, in place: sizes, or strides in elements. A value; at most kMaxDims long
/// (`invalid` beyond).
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);
  /// One dimension: zeros(5).
  template <std::integral T>
  requires(!std::same_as<T, bool>) Shape(T size) : dims_{static_cast<int64_t>(size)}, rank_(1) {}
  /// n times the same value.
  static Shape filled(int n, int64_t value);

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t& operator[](int i) { return dims_[i]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  int64_t* begin() { return dims_.data(); }
  int64_t* end() { return dims_.data() + rank_; }
  int64_t back() const { return dims_[rank_ - 1]; }
  int64_t& back() { return dims_[rank_ - 1]; }

  void push_back(int64_t v);
  void erase(int at);
  void insert(int at, int64_t v);

  /// Product of all sizes; 1 for a 0-d shape.
  int64_t numel() const;
  /// Row-major strides of a contiguous tensor of these sizes.
  Shape contiguous_strides() const;
  /// dim in [-rank, rank) as a number in [0, rank); `invalid` otherwise, the text starting with [op].
  int axis(int64_t dim, const char* op) const;
  bool operator==(const Shape& o) const {
    if (rank_ != o.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (dims_[i] != o.dims_[i]) return false;
    return true;
  }
  /// "[3, 4]".
  std::string str() const;

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int rank_ = 0;
};

/// Result of broadcasting by NumPy's rule; `invalid` where sizes differ and neither is 1.
Shape broadcast(const Shape& a, const Shape& b, const char* op);

}  // namespace troupe
