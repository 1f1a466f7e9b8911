// Kernels of ops/attention.h. One head at a time: tiles of some queries by some keys, products by gemm, a
// running maximum and sum per query (Milakov, Gimelshein 2018).
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/tensor/creation.h"
#include "ops/attention.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/loops/loops.h"
#include "ops/cpu/loops/math.h"
#include "ops/cpu/loops/rows.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr int64_t kQueries = 64, kKeys = 256;  // of a tile: its scores fit into the L2 cache twice

// [..., rows, width] whose matrices can be read by gemm.
Tensor readable(const Tensor& t) {
  const int r = t.dim();
  const int64_t rows = t.shape()[r - 2], width = t.shape()[r - 1];
  const bool dense = width <= 1 || t.strides()[r - 1] == 1, apart = rows <= 1 || t.strides()[r - 2] >= width;
  return dense && apart && width > 0 ? t : t.contiguous_data();
}

// Matrix number `index` of a tensor [..., rows, width].
template <class T>
struct Rows {
  T* p;
  int64_t step;  // from row to row

  Rows(const Tensor& t, int64_t index) : p(t.data<T>()), step(t.strides()[t.dim() - 2]) {
    for (int d = t.dim() - 3; d >= 0; index /= t.shape()[d--]) p += index % t.shape()[d] * t.strides()[d];
    step = std::max(step, std::max<int64_t>(t.shape().back(), 1));
  }
  T* row(int64_t i) const { return p + i * step; }
  Matrix<T> from(int64_t i, bool transposed = false) const { return {row(i), step, transposed}; }
};

struct Sizes {
  int64_t queries, keys, width, value_width;
  bool causal;
  double scale;

  Sizes(const Tensor& q, const Tensor& k, const Tensor& v, const Call& c)
      : queries(q.size(-2)),
        keys(k.size(-2)),
        width(q.size(-1)),
        value_width(v.size(-1)),
        causal(c.attrs.flag("causal")),
        scale(attention_scale(c.attrs, width)) {}
  // About how long one head takes.
  double ns() const {
    return 0.02 * static_cast<double>(queries) * static_cast<double>(keys) *
           static_cast<double>(width + value_width + 16);
  }
  // Keys that query i sees.
  int64_t seen(int64_t i) const { return causal ? std::min(keys, i + 1) : keys; }
};

// ldc: distance of C's rows; 0: n.
template <class T>
void product(int64_t m, int64_t n, int64_t k, const Matrix<T>& a, const Matrix<T>& b, T beta, T* c,
             int64_t ldc = 0) {
  if (m == 0 || n == 0) return;
  if (k > 0) return gemm(m, n, k, a, b, beta, c, {.ldc = ldc});
  for (int64_t i = 0; beta == 0 && i < m; ++i) std::fill_n(c + i * (ldc ? ldc : n), n, T{0});
}

// Of a row whose last keys are not seen, as many scores as fill whole vectors are worked on: what is left
// over goes one by one.
int64_t whole(int64_t seen, int64_t n) {
  constexpr int64_t kScores = 32;
  return std::min(n, (seen + kScores - 1) / kScores * kScores);
}

// One tile of scores becomes weights relative to the largest score so far; what was summed up before is
// rescaled.
template <class T>
void weigh(T* scores, int64_t rows, int64_t n, const int64_t* seen, T scale, T* top, T* total, T* out,
           int64_t width, int64_t apart) {
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t r = 0; r < rows; ++r) {
      T* row = scores + r * n;
      const int64_t count = whole(seen[r], n);
      for (int64_t i = seen[r]; i < count; ++i) row[i] = -std::numeric_limits<T>::infinity();
      const T factor = scale;  // a local: what the lambda holds might be what is written to
      const T best = largest(row, count) * factor;
      const T high = best > top[r] || best != best ? best : top[r];
      if (high != top[r] && total[r] != 0) {
        const T shrink = decay(top[r] - high);
        total[r] *= shrink;
        for (int64_t i = 0; i < width; ++i) out[r * apart + i] *= shrink;
      }
      top[r] = high;
      for (int64_t i = 0; i < count; ++i) row[i] = decay(row[i] * factor - high);
      for (int64_t i = count; i < n; ++i) row[i] = 0;
      RowSums<T> sums;
      sums.run(
          count, [row](auto& a, auto&, int64_t i) __attribute__((always_inline)) {
            a += at<std::remove_reference_t<decltype(a)>>(row, i);
          });
      total[r] += sums.first;
    }
  });
}

template <class T>
void attend(const Sizes& s, const Rows<T>& q, const Rows<T>& k, const Rows<T>& v, const Rows<T>& out,
            T* logs) {
  const Tensor memory = empty({kQueries * std::min(s.keys, kKeys)}, dtype_of<T>);
  T* scores = memory.data<T>();
  for (int64_t i0 = 0; i0 < s.queries; i0 += kQueries) {
    const int64_t rows = std::min(kQueries, s.queries - i0), keys = s.seen(i0 + rows - 1);
    T top[kQueries], total[kQueries] = {}, *sums = out.row(i0);
    std::fill_n(top, kQueries, -std::numeric_limits<T>::infinity());
    for (int64_t j0 = 0; j0 < keys; j0 += kKeys) {
      const int64_t n = std::min(kKeys, keys - j0);
      int64_t seen[kQueries];
      for (int64_t r = 0; r < rows; ++r) seen[r] = std::clamp<int64_t>(s.seen(i0 + r) - j0, 0, n);
      product<T>(rows, n, s.width, q.from(i0), k.from(j0, true), 0, scores);
      weigh(scores, rows, n, seen, static_cast<T>(s.scale), top, total, sums, s.value_width, out.step);
      product<T>(rows, s.value_width, n, {scores, n}, v.from(j0), j0 ? 1 : 0, sums, out.step);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const T scale = keys ? 1 / total[r] : 0;
      T* to = out.row(i0 + r);
      for (int64_t i = 0; i < s.value_width; ++i) to[i] = keys ? to[i] * scale : 0;
      logs[i0 + r] = top[r] + std::log(total[r]);
    }
  }
}

// From scores and products with the values: weights, and the gradient of the scores in place of the products.
template <class T>
void weigh_back(T* scores, T* products, int64_t rows, int64_t n, const int64_t* seen, T scale, const T* logs,
                const T* delta) {
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t r = 0; r < rows; ++r) {
      T *row = scores + r * n, *d = products + r * n;
      const T log = logs[r], shift = delta[r], factor = scale;
      const int64_t count = whole(seen[r], n);
      TROUPE_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) {
        row[i] = decay(row[i] * factor - log);
        d[i] = row[i] * (d[i] - shift) * factor;
      }
      for (int64_t i = seen[r]; i < n; ++i) row[i] = d[i] = 0;
    }
  });
}

template <class T>
struct Head {
  Rows<T> g, q, k, v, out, dq, dk, dv;
  const T *g_logs, *logs;
};

template <class T>
void clear_rows(const Rows<T>& x, int64_t width, int64_t first, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) std::fill_n(x.row(first + r), width, T{0});
}

template <class T>
void attend_back(const Sizes& s, const Head<T>& h) {
  const int64_t tile = kQueries * std::min(s.keys, kKeys);
  const Tensor memory = empty({2 * tile}, dtype_of<T>);
  T *scores = memory.data<T>(), *products = scores + tile;
  int64_t begun = 0;  // keys whose gradients have sums already
  for (int64_t i0 = 0; i0 < s.queries; i0 += kQueries) {
    const int64_t rows = std::min(kQueries, s.queries - i0), keys = s.seen(i0 + rows - 1);
    T delta[kQueries];
    vectorized([&]() __attribute__((always_inline)) {
      for (int64_t r = 0; r < rows; ++r) {
        const T *g = h.g.row(i0 + r), *out = h.out.row(i0 + r);
        RowSums<T> sums;
        sums.run(
            s.value_width, [=](auto& a, auto&, int64_t i) __attribute__((always_inline)) {
              using V = std::remove_reference_t<decltype(a)>;
              a += at<V>(g, i) * at<V>(out, i);
            });
        delta[r] = sums.first - h.g_logs[i0 + r];
      }
    });
    if (keys == 0) clear_rows(h.dq, s.width, i0, rows);
    for (int64_t j0 = 0; j0 < keys; j0 += kKeys) {
      const int64_t n = std::min(kKeys, keys - j0);
      int64_t seen[kQueries];
      for (int64_t r = 0; r < rows; ++r) seen[r] = std::clamp<int64_t>(s.seen(i0 + r) - j0, 0, n);
      product<T>(rows, n, s.width, h.q.from(i0), h.k.from(j0, true), 0, scores);
      product<T>(rows, n, s.value_width, h.g.from(i0), h.v.from(j0, true), 0, products);
      weigh_back(scores, products, rows, n, seen, static_cast<T>(s.scale), h.logs + i0, delta);
      const int64_t old = std::clamp<int64_t>(begun - j0, 0, n);
      const auto sum_up = [&](const T* weights, const Rows<T>& by, int64_t width, const Rows<T>& to) {
        product<T>(old, width, rows, {weights, n, true}, by.from(i0), 1, to.row(j0), to.step);
        product<T>(n - old, width, rows, {weights + old, n, true}, by.from(i0), 0, to.row(j0 + old), to.step);
      };
      sum_up(scores, h.g, s.value_width, h.dv);
      sum_up(products, h.q, s.width, h.dk);
      product<T>(rows, s.width, n, {products, n}, h.k.from(j0), j0 ? 1 : 0, h.dq.row(i0), h.dq.step);
    }
    begun = std::max(begun, keys);
  }
  clear_rows(h.dk, s.width, begun, s.keys - begun);
  clear_rows(h.dv, s.value_width, begun, s.keys - begun);
}

int64_t heads_of(const Tensor& t) {
  int64_t n = 1;
  for (int i = 0; i < t.dim() - 2; ++i) n *= t.shape()[i];
  return n;
}

void forward(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
             const Tensor& logs) {
  const Sizes s(q, k, v, c);
  const Tensor rq = readable(q), rk = readable(k), rv = readable(v);
  visit_floating(q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(heads_of(q), s.ns(), [&](int64_t i) {
      attend<T>(s, {rq, i}, {rk, i}, {rv, i}, {out, i}, logs.data<T>() + i * s.queries);
    });
  });
}

// In the order of the inputs of attention_grad.
void backward(const Call& c, const std::array<Tensor, 7>& in, const Tensor& dq, const Tensor& dk,
              const Tensor& dv) {
  const Sizes s(in[2], in[3], in[4], c);
  const Tensor g = readable(in[0]), q = readable(in[2]), k = readable(in[3]), v = readable(in[4]),
               out = readable(in[5]), g_logs = in[1].contiguous_data(), logs = in[6].contiguous_data();
  visit_floating(q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(heads_of(q), 2 * s.ns(), [&](int64_t i) {
      attend_back<T>(s, {{g, i},
                         {q, i},
                         {k, i},
                         {v, i},
                         {out, i},
                         {dq, i},
                         {dk, i},
                         {dv, i},
                         g_logs.data<T>() + i * s.queries,
                         logs.data<T>() + i * s.queries});
    });
  });
}

void attention(const Call& c, Tensors& out) { forward(c, c.in[0], c.in[1], c.in[2], out[0], out[1]); }

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
      {"attention", attention},
      {"attention_grad", attention_grad},
      {"self_attention", self_attention},
      {"self_attention_grad", self_attention_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
