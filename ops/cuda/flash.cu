// Attention on the matrix unit, forwards.
#include "ops/cuda/flash.h"
#include "ops/cuda/flash_launch.cuh"

namespace troupe::ops::on_cuda {
namespace {

// A warp's queries, a block's warps and the keys of a tile: 255 registers a thread, and 64 KiB a block, at
// most.
template <class T, int kWidth>
struct Forward;
template <class T>
requires(sizeof(T) == 2) struct Forward<T, 64> : FlashForward<T, 64, 4, 2, 64, true> {
};
template <class T>
requires(sizeof(T) == 2) struct Forward<T, 128> : FlashForward<T, 128, 8, 1, 64, false> {
};
template <int kWidth>
struct Forward<float, kWidth> : FlashForward<float, kWidth, 4, 1, 32, false> {};

}  // namespace

bool flash_forward(const Call& c, const Tensor& given_q, const Tensor& given_k, const Tensor& given_v,
                   const Tensor& given_out, const Tensor& logs) {
  if (!flash_takes(given_q, given_k, given_v)) return false;
  const Tensor q = to_read(given_q), k = to_read(given_k), v = to_read(given_v);
  const Written result(given_out);
  const Tensor& out = result.wide();
  const Shape heads = leading(q.shape());
  visit_flash(q.dtype(), std::max(q.size(-1), v.size(-1)), [&]<class T, int kWidth>() {
    run_flash(c, q.device(), heads.numel(), q.size(-2),
              Forward<T, kWidth>{{head_rows<const T>(q),
                                  head_rows<const T>(k),
                                  head_rows<const T>(v),
                                  head_rows<T>(out),
                                  elements<float>(logs),
                                  flash_sizes(c, q, k, v, given_q.size(-1)),
                                  {heads, {steps_of(q), steps_of(k), steps_of(v), steps_of(out)}}}});
  });
  result.finish();
  return true;
}

}  // namespace troupe::ops::on_cuda
