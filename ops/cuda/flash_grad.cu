// Attention on the matrix unit, backwards.
#include "ops/cuda/flash.h"
#include "ops/cuda/flash_grad.cuh"
#include "ops/cuda/flash_launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

template <class T, int kWidth>
constexpr int kColumnsAtOnce = 64 * 64 / kWidth * 2 / static_cast<int>(sizeof(T));
template <class T, int kWidth>
constexpr bool kKept = sizeof(T) == 2 && kWidth == 64;
template <class T, int kWidth>
struct OfKeys : FlashKeys<T, kWidth, 4, 1, kColumnsAtOnce<T, kWidth>, kKept<T, kWidth>> {};
template <class T, int kWidth>
struct OfQueries : FlashQueries<T, kWidth, 4, 1, kColumnsAtOnce<T, kWidth>, kKept<T, kWidth>> {};

Tensor in_float32(const Tensor& t) {
  if (t.dtype() == float32) return t.contiguous_data();
  const Tensor copy = empty(t.shape(), {float32, t.device()});
  copy_elements(copy, t);
  return copy;
}

}  // namespace

bool flash_backward(const Call& c, const std::array<Tensor, 7>& in, const Tensor& given_dq,
                    const Tensor& given_dk, const Tensor& given_dv) {
  if (!flash_takes(in[2], in[3], in[4])) return false;
  const Tensor g = to_read(in[0]), q = to_read(in[2]), k = to_read(in[3]), v = to_read(in[4]),
               out = to_read(in[5]);
  const Tensor g_logs = in_float32(in[1]), logs = in_float32(in[6]);
  const Written to_dq(given_dq), to_dk(given_dk), to_dv(given_dv);
  const Tensor &dq = to_dq.wide(), &dk = to_dk.wide(), &dv = to_dv.wide();
  const Shape heads = leading(q.shape());
  const int64_t count = heads.numel();
  const Device device = q.device();
  const Tensor delta = scratch<float>(count * q.size(-2), device);
  visit_flash(q.dtype(), std::max(q.size(-1), v.size(-1)), [&]<class T, int kWidth>() {
    FlashContext<T> of_queries{head_rows<const T>(q),
                               head_rows<const T>(k),
                               head_rows<const T>(v),
                               head_rows<const T>(g),
                               head_rows<const T>(out),
                               head_rows<T>(dq),
                               head_rows<T>(dk),
                               head_rows<T>(dv),
                               elements<const float>(logs),
                               elements<const float>(g_logs),
                               elements<float>(delta),
                               elements<const float>(delta),
                               flash_sizes(c, q, k, v, in[2].size(-1)),
                               {heads,
                                {steps_of(q), steps_of(k), steps_of(v), steps_of(g), steps_of(dq),
                                 steps_of(dk), steps_of(dv), steps_of(out)}}};
    FlashContext<T> of_keys = of_queries;  // what a pass does not read or write it does not name
    of_queries.dk.p = of_queries.dv.p = nullptr, of_queries.delta = nullptr;
    of_keys.dq.p = nullptr, of_keys.out.p = nullptr, of_keys.g_logs = nullptr, of_keys.to_delta = nullptr;
    run_flash(c, device, count, q.size(-2), OfQueries<T, kWidth>{{of_queries}});
    run_flash(c, device, count, k.size(-2), OfKeys<T, kWidth>{{of_keys}});
  });
  to_dq.finish(), to_dk.finish(), to_dv.finish();
  return true;
}

}  // namespace troupe::ops::on_cuda
