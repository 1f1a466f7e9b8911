// What both passes of flash.h have in common: which calls they take, operands as the kernels read them,
// launches.
#pragma once
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/attention.h"
#include "ops/cuda/flash_forward.cuh"
#include "ops/cuda/gemm.h"

namespace troupe::ops::on_cuda {

template <class Body>
__global__ void __launch_bounds__(Body::kThreads) flash(Body body) {
  DYNAMIC_SHARED(typename Body::Element, shared);
  body(static_cast<int64_t>(blockIdx.x), shared);
}

constexpr int64_t kMostFlashColumns = 128;

inline bool flash_takes(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t tiles = (std::max(q.size(-2), k.size(-2)) + 31) / 32;  // a block has 64 rows or more
  return q.dtype() != float64 && q.size(-1) > 0 && v.size(-1) > 0 && q.size(-1) <= kMostFlashColumns &&
         v.size(-1) <= kMostFlashColumns && leading(q.shape()).numel() * tiles <= INT32_MAX;
}

// Calls f<T, kWidth>(), kWidth columns being enough.
template <class F>
void visit_flash(DType dtype, int64_t width, F&& f) {
  const auto of = [&](auto zero) {
    using T = decltype(zero);
    width <= 64 ? f.template operator()<T, 64>() : f.template operator()<T, 128>();
  };
  dtype == bfloat16 ? of(mu::Bf16{}) : dtype == float16 ? of(mu::Fp16{}) : of(float{});
}

inline int64_t padded(const Tensor& t) {
  const auto chunk = static_cast<int64_t>(16 / item_size(t.dtype()));
  return (t.size(-1) + chunk - 1) / chunk * chunk;
}
// Whether rows can be read and written 16 bytes at once.
inline bool lies_well(const Tensor& t) {
  const auto item = static_cast<int64_t>(item_size(t.dtype()));
  const int r = t.dim();
  if (t.numel() == 0) return true;
  if (padded(t) != t.size(-1) || (t.size(-1) > 1 && t.strides()[r - 1] != 1)) return false;
  for (int d = 0; d < r - 1; ++d)
    if (t.shape()[d] > 1 && t.strides()[d] * item % 16) return false;
  return reinterpret_cast<uintptr_t>(t.address()) % 16 == 0;
}
inline Shape padded_shape(const Tensor& t) {
  Shape s = t.shape();
  s.back() = padded(t);
  return s;
}
inline Tensor without_padding(const Tensor& wide, const Tensor& like) {
  return wide.alias(like.shape(), wide.strides(), wide.storage_offset());
}
// t, or a copy whose rows can be read so, with zeros behind them.
inline Tensor to_read(const Tensor& t) {
  if (lies_well(t)) return t;
  const Tensor copy = zeros(padded_shape(t), {t.dtype(), t.device()});
  copy_elements(without_padding(copy, t), t);
  return copy;
}
// A tensor that takes the results meant for `to`, and puts them there.
class Written {
 public:
  explicit Written(const Tensor& to)
      : to_(to), wide_(lies_well(to) ? to : empty(padded_shape(to), {to.dtype(), to.device()})) {}
  const Tensor& wide() const { return wide_; }
  void finish() const {
    if (wide_.address() != to_.address()) copy_elements(to_, without_padding(wide_, to_));
  }

 private:
  const Tensor &to_, wide_;
};

template <class T>
HeadRows<T> head_rows(const Tensor& t) {
  return {elements<T>(t), t.strides()[t.dim() - 2]};
}
inline Shape steps_of(const Tensor& t) { return leading(t.strides()); }

// Of operands that lie well; `width` is q's own.
inline FlashSizes flash_sizes(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v,
                              int64_t width) {
  const auto scale = static_cast<float>(attention_scale(c.attrs, width));
  return {q.size(-2),
          k.size(-2),
          static_cast<int>(q.size(-1)),
          static_cast<int>(v.size(-1)),
          c.attrs.flag("causal"),
          scale,
          scale * kLog2e};
}

template <class Body>
void run_flash(const Call& c, Device device, int64_t heads, int64_t rows, const Body& body) {
  const int64_t blocks = heads * ((rows + Body::kM - 1) / Body::kM);
  if (blocks > 0)
    cuda::launch(c.name(), device, flash<Body>, dim3(static_cast<unsigned>(blocks)), dim3(Body::kThreads),
                 Body::kShared, body);
}

}  // namespace troupe::ops::on_cuda
