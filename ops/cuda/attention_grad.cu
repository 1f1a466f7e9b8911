// The gradient of attention: of each of its three inputs by tiles of its rows, so that nothing is added from
// two blocks.
#include "ops/cuda/attention.cuh"

namespace troupe::ops::on_cuda {
namespace {

// What the passes of the gradient read.
template <class T>
struct Context {
  Matrix<const T> g, q, k, v, out;
  const T *g_logs, *logs;
  T* delta;  // of each query: the sum of gradient times result, less the gradient of the logarithm
  AttentionSizes s;
  Places<8> heads;  // of g, q, k, v, out, dq, dk, dv

  template <class F>
  void visit(F&& f) {
    visit_pointers(f, g.p, q.p, k.p, v.p, out.p, g_logs, logs, delta);
  }
};

template <class T>
struct Delta {
  Context<T> c;
  template <class F>
  void visit(F&& f) {
    c.visit(f);
  }
  __device__ void operator()(int64_t row) const {
    const int64_t i = row % c.s.queries;
    int64_t at[8];
    c.heads.find(row / c.s.queries, at);
    const T *g = c.g.p + at[0] + i * c.g.row, *out = c.out.p + at[4] + i * c.out.row;
    T sum = 0;
    for (int64_t x = threadIdx.x; x < c.s.value_width; x += blockDim.x)
      sum += g[x * c.g.column] * out[x * c.out.column];
    sum = block_sum(sum);
    if (threadIdx.x == 0) c.delta[row] = sum - c.g_logs[row];
  }
};

enum class Of : uint8_t { queries, keys, values };

// A tile of one of the three gradients. For that of queries the tile's rows are queries and its columns keys;
// for the others the other way round. Its coefficients are the gradients of the scores or, of values, the
// weights.
template <class T, int width, Of of>
struct Gradient {
  Matrix<T> to;
  Context<T> c;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, to.p);
    c.visit(f);
  }
  __device__ void operator()(int64_t block) const {
    __shared__ T coefficients[kRows][kColumns + 1];
    constexpr bool by_query = of == Of::queries;
    const AttentionSizes& s = c.s;
    const int64_t rows = by_query ? s.queries : s.keys, columns = of == Of::values ? s.value_width : s.width;
    const Place tile(block, rows, columns, width);
    int64_t at[8];
    c.heads.find(tile.head, at);
    const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
    Sums<T, width> sums(tile.column);
    // Queries before the first key do not see any of the tile.
    const int64_t begin = !by_query && s.causal ? tile.first : 0;
    const int64_t end = by_query ? s.seen(tile.first + tile.count - 1) : s.queries;
    for (int64_t l0 = begin; l0 < end; l0 += kColumns) {
      const int64_t count = smaller(kColumns, end - l0);
      const int64_t i0 = by_query ? tile.first : l0, j0 = by_query ? l0 : tile.first;
      const int64_t queries = by_query ? tile.count : count, keys = by_query ? count : tile.count;
      const Slab<T> q(c.q, at[1], i0, queries, s.width), k(c.k, at[2], j0, keys, s.width);
      const Slab<T> g(c.g, at[0], i0, queries, s.value_width), v(c.v, at[3], j0, keys, s.value_width);
      T scores[2][4], slopes[2][4];
      products(scores, by_query ? q : k, by_query ? k : q);
      if constexpr (of != Of::values) products(slopes, by_query ? g : v, by_query ? v : g);
      for (int a = 0; a < 2; ++a)
        for (int b = 0; b < 4; ++b) {
          const int row = ty + a * kSide, column = tx + b * kSide;
          const int64_t i = i0 + (by_query ? row : column), j = j0 + (by_query ? column : row);
          T value = 0;
          if (row < tile.count && column < count && j < s.seen(i)) {
            const int64_t query = tile.head * s.queries + i;
            value = std::exp(scores[a][b] * static_cast<T>(s.scale) - c.logs[query]);
            if constexpr (of != Of::values)
              value = value * (slopes[a][b] - c.delta[query]) * static_cast<T>(s.scale);
          }
          coefficients[row][column] = value;
        }
      __syncthreads();
      sums.add(coefficients, of == Of::queries ? k : of == Of::keys ? q : g);
      __syncthreads();
    }
    constexpr int place = of == Of::queries ? 5 : of == Of::keys ? 6 : 7;
    for (int r = 0; r < sums.kEach; ++r)
      if (sums.first + r < tile.count && sums.x < columns)
        to.p[at[place] + (tile.first + sums.first + r) * to.row + sums.x * to.column] = sums.values[r];
  }
};

template <Of of, class T>
void gradient(const Call& c, const Context<T>& all, int64_t heads, const Tensor& to) {
  const int64_t rows = to.size(-2), columns = to.size(-1);
  visit_width(columns, [&](auto width) {
    for_each_block(c.name(), to.device(), heads * tiles(rows, kRows) * tiles(columns, width), kThreads,
                   Gradient<T, width(), of>{Matrix<T>(to), all});
  });
}

}  // namespace

void attention_backward(const Call& c, const std::array<Tensor, 7>& in, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv) {
  const Tensor &g = in[0], &q = in[2], &k = in[3], &v = in[4], &out = in[5];
  const Tensor g_logs = in[1].contiguous_data(), logs = in[6].contiguous_data();
  const AttentionSizes s(q, k, v, c.attrs);
  const Shape heads = leading(q.shape());
  const int64_t count = heads.numel();
  visit_floating(q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor delta = scratch<T>(count * s.queries, q.device());
    const Context<T> all{
        Matrix<const T>(g),
        Matrix<const T>(q),
        Matrix<const T>(k),
        Matrix<const T>(v),
        Matrix<const T>(out),
        elements<const T>(g_logs),
        elements<const T>(logs),
        elements<T>(delta),
        s,
        {heads,
         {leading_strides(g), leading_strides(q), leading_strides(k), leading_strides(v),
          leading_strides(out), leading_strides(dq), leading_strides(dk), leading_strides(dv)}}};
    for_each_row(c.name(), q.device(), count * s.queries, s.value_width, Delta<T>{all});
    gradient<Of::queries>(c, all, count, dq);
    gradient<Of::keys>(c, all, count, dk);
    gradient<Of::values>(c, all, count, dv);
  });
}

}  // namespace troupe::ops::on_cuda
