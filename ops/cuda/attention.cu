// Kernels of ops/attention.h: on the matrix unit (flash.h), or, of float64 and many columns, here. A block
// takes a tile of queries through all keys, also in tiles, with a running maximum and sum of each query
// (Milakov, Gimelshein 2018; Dao 2022). No matrix of scores is kept.
#include "ops/cuda/attention.cuh"

#include "core/tensor/elements.h"
#include "ops/cuda/flash.h"

namespace troupe::ops::on_cuda {
namespace {

template <class T, int width>
struct Attend {
  Matrix<T> out;
  T* logs;
  Matrix<const T> q, k, v;
  AttentionSizes s;
  Places<4> heads;  // of q, k, v and out
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out.p, logs, q.p, k.p, v.p);
  }
  __device__ void operator()(int64_t block) const {
    __shared__ T weights[kRows][kColumns + 1];
    __shared__ T factors[kRows];
    const Place tile(block, s.queries, s.value_width, width);
    int64_t at[4];
    heads.find(tile.head, at);
    const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
    const int row = static_cast<int>(threadIdx.x) / 8,
              part = static_cast<int>(threadIdx.x) % 8;  // of the softmax
    const int64_t seen = row < tile.count ? s.seen(tile.first + row) : 0;
    T top = -std::numeric_limits<T>::infinity(), total = 0;
    Sums<T, width> sums(tile.column);
    const int64_t keys = s.seen(tile.first + tile.count - 1);
    for (int64_t j0 = 0; j0 < keys; j0 += kColumns) {
      const int64_t count = smaller(kColumns, keys - j0);
      T scores[2][4];
      products<T>(scores, {q, at[0], tile.first, tile.count, s.width}, {k, at[1], j0, count, s.width});
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
          weights[ty + i * kSide][tx + j * kSide] = scores[i][j] * static_cast<T>(s.scale);
      __syncthreads();
      T best = -std::numeric_limits<T>::infinity();
      for (int64_t j = part; j < kColumns && j0 + j < seen; j += 8)
        best = weights[row][j] > best ? weights[row][j] : best;
      for (int with = 4; with > 0; with /= 2) {
        const T other = __shfl_xor_sync(~0u, best, with);
        best = other > best ? other : best;
      }
      const T high = best > top ? best : top;
      T sum = 0;
      for (int64_t j = part; j < kColumns; j += 8) {
        const T weight = j0 + j < seen ? std::exp(weights[row][j] - high) : T{0};
        weights[row][j] = weight;
        sum += weight;
      }
      for (int with = 4; with > 0; with /= 2) sum += __shfl_xor_sync(~0u, sum, with);
      const T shrink = total != 0 ? std::exp(top - high) : T{0};
      total = total * shrink + sum;
      top = high;
      if (part == 0) factors[row] = shrink;
      __syncthreads();
      for (int r = 0; r < sums.kEach; ++r) sums.values[r] *= factors[sums.first + r];
      sums.add(weights, {v, at[2], j0, count, s.value_width});
      __syncthreads();  // the next tile's weights go there
    }
    if (part == 0) factors[row] = keys ? 1 / total : T{0};
    if (part == 0 && tile.column == 0 && row < tile.count)
      logs[tile.head * s.queries + tile.first + row] = top + std::log(total);
    __syncthreads();
    for (int r = 0; r < sums.kEach; ++r)
      if (sums.first + r < tile.count && sums.x < s.value_width)
        out.p[at[3] + (tile.first + sums.first + r) * out.row + sums.x * out.column] =
            sums.values[r] * factors[sums.first + r];
    __syncthreads();
  }
};

// A float32 copy of halves.
Tensor wide(const Tensor& t) {
  if (!is_half(t.dtype())) return t;
  const Tensor copy = empty(t.shape(), {float32, t.device()});
  copy_elements(copy, t);
  return copy;
}
Tensor wide_like(const Tensor& t) { return is_half(t.dtype()) ? empty(t.shape(), {float32, t.device()}) : t; }
void round_to(const Tensor& to, const Tensor& from) {
  if (is_half(to.dtype())) copy_elements(to, from);
}

void forward(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
             const Tensor& logs) {
  if (flash_forward(c, q, k, v, out, logs)) return;
  if (is_half(q.dtype())) {
    const Tensor result = wide_like(out);
    forward(c, wide(q), wide(k), wide(v), result, logs);
    return round_to(out, result);
  }
  const AttentionSizes s(q, k, v, c.attrs);
  const Shape heads = leading(q.shape());
  visit_floating(q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    visit_width(s.value_width, [&](auto width) {
      const Attend<T, width()> body{
          Matrix<T>(out),
          elements<T>(logs),
          Matrix<const T>(q),
          Matrix<const T>(k),
          Matrix<const T>(v),
          s,
          {heads, {leading_strides(q), leading_strides(k), leading_strides(v), leading_strides(out)}}};
      // The logarithms are wanted also of values without columns.
      const int64_t across = std::max<int64_t>(tiles(s.value_width, width), 1);
      for_each_block(c.name(), q.device(), heads.numel() * tiles(s.queries, kRows) * across, kThreads, body);
    });
  });
}

void attention(const Call& c, Tensors& out) { forward(c, c.in[0], c.in[1], c.in[2], out[0], out[1]); }

void backward(const Call& c, std::array<Tensor, 7> in, const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  if (flash_backward(c, in, dq, dk, dv)) return;
  for (Tensor& t : in) t = wide(t);
  const Tensor of[] = {wide_like(dq), wide_like(dk), wide_like(dv)};
  attention_backward(c, in, of[0], of[1], of[2]);
  round_to(dq, of[0]), round_to(dk, of[1]), round_to(dv, of[2]);
}

void attention_grad(const Call& c, Tensors& out) {
  backward(c, {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.in[5], c.in[6]}, out[0], out[1], out[2]);
}

void self_attention(const Call& c, Tensors& out) {
  const int64_t heads = c.attrs.integer("heads");
  const auto part = [&](int64_t i) { return part_of(c.in[0], i, 3, heads); };
  forward(c, part(0), part(1), part(2), part_of(out[0], 0, 1, heads), out[1]);
}

void self_attention_grad(const Call& c, Tensors& out) {
  const int64_t heads = c.attrs.integer("heads");
  const auto part = [&](const Tensor& x, int64_t i) { return part_of(x, i, 3, heads); };
  const Tensor& qkv = c.in[2];
  backward(c,
           {part_of(c.in[0], 0, 1, heads), c.in[1], part(qkv, 0), part(qkv, 1), part(qkv, 2),
            part_of(c.in[3], 0, 1, heads), c.in[4]},
           part(out[0], 0), part(out[0], 1), part(out[0], 2));
}

}  // namespace

KernelTable attention_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"attention", attention, nullptr, true},
      {"attention_grad", attention_grad, nullptr, true},
      {"self_attention", self_attention, nullptr, true},
      {"self_attention_grad", self_attention_grad, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
