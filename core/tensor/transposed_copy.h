// Copies of tensors whose rows do not lie together but whose columns do, in square tiles: what is read and
// what is written both stay in the first-level cache.
#pragma once
#include <algorithm>

#include "core/base/compiler.h"
#include "core/tensor/tensor.h"

namespace troupe {

/// The way through x [.., columns], dense along another dimension than the last one, `rows` long.
class Transposed {
 public:
  static constexpr int64_t kTile = 16;

  explicit Transposed(const Tensor& x) : shape_(x.shape()), strides_(x.strides()), last_(x.dim() - 1) {
    if (last_ < 1 || shape_[last_] < kTile || strides_[last_] == 1) return;
    for (int d = 0; d < last_; ++d)
      if (strides_[d] == 1 && shape_[d] >= kTile) along_ = d;
    if (along_ < 0) return;
    strips_ = (rows() + kTile - 1) / kTile;
    for (int d = 0; d < last_; ++d)
      if (d != along_) strips_ *= shape_[d];
    for (int d = along_ + 1; d <= last_; ++d) row_ *= shape_[d];
  }

  /// How many strips of kTile rows there are; 0 if the tensor is no such one.
  int64_t strips() const { return strips_; }

  /// Writes a strip of the elements x to `out`, where they lie in row-major order.
  template <class T>
  [[gnu::always_inline]] void write(int64_t strip, const T* x, T* out) const {
    const int64_t blocks = (rows() + kTile - 1) / kTile, row = strip % blocks * kTile,
                  columns = shape_[last_], step = strides_[last_], row_step = row_;
    const int64_t high = std::min(kTile, rows() - row);
    x += row, out += row * row_step;
    int64_t index = strip / blocks, lower = columns;  // lower: distance in `out` along dimension d
    for (int d = last_ - 1; d >= 0; lower *= shape_[d--]) {
      if (d == along_) continue;
      x += index % shape_[d] * strides_[d];
      out += index % shape_[d] * lower;
      index /= shape_[d];
    }
    for (int64_t column = 0; column < columns; column += kTile) {
      const int64_t wide = std::min(kTile, columns - column);
      const T* const from = x + column * step;
      T* const to = out + column;
      if (high == kTile && wide == kTile) {
        for (int64_t r = 0; r < kTile; ++r) {
          TROUPE_INDEPENDENT
          for (int64_t c = 0; c < kTile; ++c) to[r * row_step + c] = from[r + c * step];
        }
      } else {
        for (int64_t r = 0; r < high; ++r)
          for (int64_t c = 0; c < wide; ++c) to[r * row_step + c] = from[r + c * step];
      }
    }
  }

 private:
  int64_t rows() const { return shape_[along_]; }

  Shape shape_, strides_;
  int last_, along_ = -1;
  int64_t strips_ = 0, row_ = 1;  // row_: distance of rows in what is written
};

}  // namespace troupe
