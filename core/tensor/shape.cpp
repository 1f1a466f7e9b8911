#include "core/tensor/shape.h"

#include <algorithm>

#include "core/base/error.h"

namespace troupe {

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxDims)
    throw_invalid("[shape] " + std::to_string(dims.size()) + " dimensions; a tensor has at most " +
                  std::to_string(kMaxDims));
  std::copy(dims.begin(), dims.end(), dims_.begin());
  rank_ = static_cast<int>(dims.size());
}

Shape Shape::filled(int n, int64_t value) {
  Shape s;
  for (int i = 0; i < n; ++i) s.push_back(value);
  return s;
}

void Shape::push_back(int64_t v) { insert(rank_, v); }

void Shape::erase(int at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --rank_;
}

void Shape::insert(int at, int64_t v) {
  if (rank_ == kMaxDims)
    throw_invalid("[shape] a tensor has at most " + std::to_string(kMaxDims) + " dimensions");
  std::copy_backward(begin() + at, end(), end() + 1);
  dims_[at] = v;
  ++rank_;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  bool fits = true;
  for (int64_t d : *this) {
    if (d == 0) return 0;
    fits &= !__builtin_mul_overflow(n, d, &n);
  }
  if (!fits) throw_invalid("[shape] " + str() + " has more elements than can be counted");
  return n;
}

Shape Shape::contiguous_strides() const {
  Shape s = *this;
  uint64_t step = 1;  // beyond 64 bits only for shapes that no tensor has
  for (int i = rank_ - 1; i >= 0; --i) {
    s[i] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(std::max<int64_t>(dims_[i], 1));
  }
  return s;
}

int Shape::axis(int64_t dim, const char* op) const {
  const int64_t n = std::max(rank_, 1);
  if (dim < -n || dim >= n)
    throw_invalid("[" + std::string(op) + "] dimension " + std::to_string(dim) +
                  " is out of range for shape " + str());
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

std::string Shape::str() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) out += (i ? ", " : "") + std::to_string(dims_[i]);
  return out + "]";
}

Shape broadcast(const Shape& a, const Shape& b, const char* op) {
  Shape out = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  const int shift = out.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    int64_t& x = out[i + shift];
    const int64_t y = shorter[i];
    if (x == y || y == 1) continue;
    if (x != 1)
      throw_invalid("[" + std::string(op) + "] shapes do not broadcast: " + a.str() + " and " + b.str());
    x = y;
  }
  return out;
}

}  // namespace troupe
