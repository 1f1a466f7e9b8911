// Kernels of ops/layer_norm.h and ops/batch_norm.h. Rows that fit the registers are in norm_rows.cuh.
#include "ops/cuda/norm_rows.cuh"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

template <class T>
struct Statistics {
  T mean = 0, scale = 0;  // scale: 1 / deviation
};

// The rounding of the mean shows in the sum of the deviations from it, and is taken off: a row of equal
// numbers gives zeros, however small eps (Chan, Golub and LeVeque's corrected two-pass algorithm).
template <bool centered, class A, class T>
__device__ Statistics<A> statistics(const T* x, int64_t n, A eps) {
  Statistics<A> s;
  if constexpr (centered) {
    A sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<A>(x[i]);
    s.mean = block_sum(sum) / static_cast<A>(n);
  }
  A squares = 0, deviations = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const A d = static_cast<A>(x[i]) - s.mean;
    squares += d * d;
    deviations += d;
  }
  squares = block_sum(squares);
  if constexpr (centered) {
    deviations = block_sum(deviations);
    const A lost = deviations / static_cast<A>(n);
    s.mean += lost;
    squares -= deviations * lost;
    if (squares < 0) squares = 0;
  }
  s.scale = 1 / std::sqrt(squares / static_cast<A>(n) + eps);
  if constexpr (centered)  // squares beyond A's range: no number is right
    if (s.scale == 0) s.scale = std::numeric_limits<A>::quiet_NaN();
  return s;
}

// T: what is stored; A: what is computed with.
template <class T, class A, bool centered>
struct NormForward {
  T* out;
  const T *x, *weight, *bias;
  int64_t n;
  A eps;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x, weight, bias);
  }
  __device__ void operator()(int64_t row) const {
    const T* in = x + row * n;
    const Statistics<A> s = statistics<centered>(in, n, eps);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const A y = (static_cast<A>(in[i]) - s.mean) * s.scale * static_cast<A>(weight[i]);
      out[row * n + i] = static_cast<T>(bias ? y + static_cast<A>(bias[i]) : y);
    }
  }
};

template <bool centered>
void forward(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), weight = c.in[1].contiguous_data();
  const Tensor bias = c.in.size() == 3 ? c.in[2].contiguous_data() : Tensor();
  const int64_t n = weight.numel();
  if (n == 0) return;
  const int64_t rows = x.numel() / n;
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    const auto eps = static_cast<A>(c.attrs.number("eps"));
    T* const to = elements<T>(out[0]);
    const T *const from = elements<const T>(x), *const w = elements<const T>(weight),
                   *const b = elements<const T>(bias);
    if constexpr (std::is_same_v<A, float>)
      if (rows < INT32_MAX && visit_rows<T>(n, {to, from, w, b}, [&]<int kPacks, int kGroup>() {
            using Body = NormRows<T, kPacks, kGroup, centered>;
            run_rows(c, x.device(), (rows + Body::kAtOnce - 1) / Body::kAtOnce, GroupValues<kGroup>::kShared,
                     Body{to, from, w, b, rows, static_cast<int>(n), eps});
          }))
        return;
    for_each_row(c.name(), x.device(), rows, n, NormForward<T, A, centered>{to, from, w, b, n, eps});
  });
}

// The gradient of x, and the statistics of each row for the gradients of weight and bias.
template <class T, class A, bool centered>
struct NormBackward {
  T* dx;
  A* stats;
  const T *g, *x, *weight, *added;  // added: null if there is none
  int64_t n;
  A eps;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dx, stats, g, x, weight, added);
  }
  __device__ void operator()(int64_t row) const {
    const T *in = x + row * n, *gradient = g + row * n;
    const Statistics<A> s = statistics<centered>(in, n, eps);
    A first = 0, second = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const A gw = static_cast<A>(gradient[i]) * static_cast<A>(weight[i]);
      first += gw;
      second += gw * (static_cast<A>(in[i]) - s.mean);
    }
    first = block_sum(first);
    second = block_sum(second);
    const A k = 1 / static_cast<A>(n), shift = centered ? first * k : A{0};
    const A slope = second * k * s.scale * s.scale;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const A d = static_cast<A>(in[i]) - s.mean,
              gw = static_cast<A>(gradient[i]) * static_cast<A>(weight[i]);
      const T own = static_cast<T>((gw - shift - d * slope) * s.scale);
      dx[row * n + i] =
          added ? static_cast<T>(static_cast<A>(added[row * n + i]) + static_cast<A>(own)) : own;
    }
    if (threadIdx.x == 0) {
      stats[2 * row] = s.mean;
      stats[2 * row + 1] = s.scale;
    }
  }
};

constexpr int64_t kRows = 64;  // whose gradients of the weight are one term

template <class T, class A>
struct WeightTerms {
  A* terms;  // [pieces, 2, n]
  const T *g, *x;
  const A* stats;
  int64_t rows, n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, terms, g, x, stats);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t piece = i / n, column = i % n;
    const int64_t last = (piece + 1) * kRows < rows ? (piece + 1) * kRows : rows;
    A dw = 0, db = 0;
    for (int64_t r = piece * kRows; r < last; ++r) {
      const A gradient = static_cast<A>(g[r * n + column]);
      dw += gradient * ((static_cast<A>(x[r * n + column]) - stats[2 * r]) * stats[2 * r + 1]);
      db += gradient;
    }
    terms[2 * piece * n + column] = dw;
    terms[(2 * piece + 1) * n + column] = db;
  }
};
template <class T, class A>
struct WeightSums {
  T *dw, *db;  // db: null if there is none
  const A* terms;
  int64_t pieces, n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dw, db, terms);
  }
  __device__ void operator()(int64_t i) const {
    double w = 0, b = 0;
    for (int64_t p = 0; p < pieces; ++p) {
      w += static_cast<double>(terms[2 * p * n + i]);
      b += static_cast<double>(terms[(2 * p + 1) * n + i]);
    }
    dw[i] = static_cast<T>(static_cast<A>(w));
    if (db) db[i] = static_cast<T>(static_cast<A>(b));
  }
};

// What the gradients read and write.
template <class T>
struct NormGradient {
  Tensor g, x, weight, added;
  T *dx, *dw, *db;
  int64_t rows, n;
};

// This is the way with rows in registers, if they fit.
template <bool centered, class T>
bool backward_by_rows(const Call& c, const NormGradient<T>& v) {
  const T *const g = elements<const T>(v.g), *const x = elements<const T>(v.x),
                 *const w = elements<const T>(v.weight), *const added = elements<const T>(v.added);
  constexpr int64_t kBlocks = 256;
  return visit_rows<T>(v.n, {v.dx, g, x, w, added}, [&]<int kPacks, int kGroup>() {
    using Body = NormRowsBackward<T, kPacks, kGroup, centered>;
    const int64_t blocks = std::min(kBlocks, (v.rows + Body::kAtOnce - 1) / Body::kAtOnce);
    const Device device = v.x.device();
    const int n = static_cast<int>(v.n);
    const Tensor terms = scratch<float>(blocks * 2 * v.n, device);
    const auto sums = Body::kAtOnce > 1 ? static_cast<size_t>(2 * v.n) : 0;
    run_rows(c, device, blocks, GroupValues<kGroup>::kShared + sums,
             Body{v.dx, elements<float>(terms), g, x, w, added, v.rows, blocks, n,
                  static_cast<float>(c.attrs.number("eps"))});
    for_each_block(c.name(), device, (2 * v.n + 31) / 32, 256,
                   NormTermSums<T>{v.dw, v.db, elements<const float>(terms), blocks, n});
  });
}

// At an address of its own if it lies so that packs cannot be read: the bits are those without it.
Tensor whole_packs(const Tensor& x) {
  return reinterpret_cast<uintptr_t>(elements<const unsigned char>(x)) % 16 ? x.clone_data() : x;
}

template <bool centered>
void backward(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data(),
               weight = c.in[2].contiguous_data(),
               added = c.in.size() > 3 ? whole_packs(c.in[3].contiguous_data()) : Tensor();
  const int64_t n = weight.numel();
  if (n == 0) return;
  const int64_t rows = x.numel() / n, pieces = (rows + kRows - 1) / kRows;
  const Device device = x.device();
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    const NormGradient<T> v{g,
                            x,
                            weight,
                            added,
                            elements<T>(out[0]),
                            elements<T>(out[1]),
                            centered ? elements<T>(out[2]) : nullptr,
                            rows,
                            n};
    if constexpr (std::is_same_v<A, float>)
      if (backward_by_rows<centered>(c, v)) return;
    const Tensor stats = scratch<A>(2 * rows, device), terms = scratch<A>(2 * pieces * n, device);
    for_each_row(
        c.name(), device, rows, n,
        NormBackward<T, A, centered>{v.dx, elements<A>(stats), elements<const T>(g), elements<const T>(x),
                                     elements<const T>(weight), elements<const T>(added), n,
                                     static_cast<A>(c.attrs.number("eps"))});
    for_each(c.name(), device, pieces * n,
             WeightTerms<T, A>{elements<A>(terms), elements<const T>(g), elements<const T>(x),
                               elements<const A>(stats), rows, n});
    for_each(c.name(), device, n, WeightSums<T, A>{v.dw, v.db, elements<const A>(terms), pieces, n});
  });
}

// ---- batch norm

// An array as [n, channels, size].
struct Layout {
  int64_t n, channels, size = 1;

  explicit Layout(const Shape& shape) : n(shape[0]), channels(shape[1]) {
    for (int i = 2; i < shape.rank(); ++i) size *= shape[i];
  }
  // So many channels as one.
  Layout joined(int64_t together) const {
    Layout l = *this;
    if (channels == 0) return l;  // `together` may be any number then
    l.channels /= together;
    l.size *= together;
    return l;
  }
  int64_t per_channel() const { return n * size; }
  __device__ int64_t at(int64_t channel, int64_t i) const {
    return (i / size * channels + channel) * size + i % size;
  }
  __device__ int64_t channel_of(int64_t i) const { return i / size % channels; }
};

// Statistics of a channel in double. The second sum would be zero if the mean were exact (Chan, Golub,
// LeVeque 1983).
// T: what is stored; A: what is computed with, and statistics are.
template <class T, class A>
struct ChannelStatistics {
  A *mean, *var, *center, *scale;
  const T* x;
  const A* weight;
  Layout l;
  int64_t together;
  double eps;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, mean, var, center, scale, x, weight);
  }
  __device__ void operator()(int64_t k) const {
    const int64_t n = l.n * l.size;
    const double count = static_cast<double>(n > 1 ? n : 1);
    double sum = 0, squares = 0, deviations = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += convert<double>(x[l.at(k, i)]);
    const double m = block_sum(sum) / count;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const double d = convert<double>(x[l.at(k, i)]) - m;
      squares += d * d;
      deviations += d;
    }
    squares = block_sum(squares);
    deviations = block_sum(deviations);
    const double rough = (squares - deviations * deviations / count) / count, v = rough > 0 ? rough : 0;
    const A of_mean = static_cast<A>(m), of_var = static_cast<A>(std::isnan(squares) ? squares : v);
    const double deviation = std::sqrt(static_cast<double>(of_var) + eps);
    if (threadIdx.x == 0) {
      mean[k] = of_mean;
      var[k] = of_var;
    }
    for (int64_t i = k * together + threadIdx.x; i < (k + 1) * together; i += blockDim.x) {
      center[i] = of_mean;
      scale[i] = static_cast<A>(static_cast<double>(weight[i]) / deviation);
    }
  }
};
template <class T, class A>
struct ChannelAffine {
  T* y;
  const T* x;
  const A *center, *scale, *shift;
  Layout l;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, y, x, center, scale, shift);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t k = l.channel_of(i);
    y[i] = static_cast<T>((static_cast<A>(x[i]) - center[k]) * scale[k] + shift[k]);
  }
};
// Input i, numbers of channels, as kernels read them.
Tensor computed_with(const Call& c, size_t i) {
  const Tensor& t = c.in[i];
  if (!is_half(t.dtype())) return t.contiguous_data();
  const Tensor wide = empty(t.shape(), {float32, t.device()});
  visit_stored(t.dtype(),
               [&](auto stored, auto) { map1<float, decltype(stored)>(c.name(), t, wide, As<float>{}); });
  return wide;
}
void batch_norm_train(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), weight = computed_with(c, 1), bias = computed_with(c, 2);
  const Layout l(x.shape());
  const int64_t together = c.attrs.integer("together");
  const Layout joined = l.joined(together);
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    const Tensor of_channels = scratch<A>(2 * l.channels, x.device());
    A *center = elements<A>(of_channels), *scale = center + l.channels;
    for_each_row(
        c.name(), x.device(), joined.channels, joined.per_channel(),
        ChannelStatistics<T, A>{elements<A>(out[1]), elements<A>(out[2]), center, scale, elements<const T>(x),
                                elements<const A>(weight), joined, together, c.attrs.number("eps")});
    for_each(c.name(), x.device(), x.numel(),
             ChannelAffine<T, A>{elements<T>(out[0]), elements<const T>(x), center, scale,
                                 elements<const A>(bias), l});
  });
}
void channel_affine(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), center = computed_with(c, 1), scale = computed_with(c, 2),
               shift = computed_with(c, 3);
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), x.device(), x.numel(),
             ChannelAffine<T, A>{elements<T>(out[0]), elements<const T>(x), elements<const A>(center),
                                 elements<const A>(scale), elements<const A>(shift), Layout(x.shape())});
  });
}

template <class T, class A>
struct ChannelSums {
  A *first, *second;
  const T *g, *x;
  const A* center;
  Layout l;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, first, second, g, x, center);
  }
  __device__ void operator()(int64_t k) const {
    const double m = static_cast<double>(center[k]);
    double a = 0, b = 0;
    for (int64_t i = threadIdx.x; i < l.n * l.size; i += blockDim.x) {
      const int64_t at = l.at(k, i);
      const double v = convert<double>(g[at]);
      a += v;
      b += v * (convert<double>(x[at]) - m);
    }
    a = block_sum(a);
    b = block_sum(b);
    if (threadIdx.x) return;
    first[k] = static_cast<A>(a);
    second[k] = static_cast<A>(b);
  }
};
void channel_sums(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data(), center = computed_with(c, 2);
  const Layout l(x.shape());
  const bool rounds = is_half(out[0].dtype());
  const auto sums = [&](const Tensor& t) { return rounds ? empty(t.shape(), {float32, t.device()}) : t; };
  const Tensor first = sums(out[0]), second = sums(out[1]);
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each_row(c.name(), x.device(), l.channels, l.per_channel(),
                 ChannelSums<T, A>{elements<A>(first), elements<A>(second), elements<const T>(g),
                                   elements<const T>(x), elements<const A>(center), l});
    if constexpr (sizeof(T) == 2)
      if (rounds) {
        map1<T, float>(c.name(), first, out[0], As<T>{});
        map1<T, float>(c.name(), second, out[1], As<T>{});
      }
  });
}

template <class T, class A>
struct ChannelMix {
  T* out;
  const T *g, *x;
  const A *center, *p, *q, *r;
  Layout l;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g, x, center, p, q, r);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t k = l.channel_of(i);
    out[i] = static_cast<T>(p[k] * static_cast<A>(g[i]) + (q[k] * (static_cast<A>(x[i]) - center[k]) + r[k]));
  }
};
void channel_mix(const Call& c, Tensors& out) {
  Tensor in[6];
  for (size_t i = 0; i < 6; ++i) in[i] = i < 2 ? c.in[i].contiguous_data() : computed_with(c, i);
  visit_stored(out[0].dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), out[0].device(), out[0].numel(),
             ChannelMix<T, A>{elements<T>(out[0]), elements<const T>(in[0]), elements<const T>(in[1]),
                              elements<const A>(in[2]), elements<const A>(in[3]), elements<const A>(in[4]),
                              elements<const A>(in[5]), Layout(out[0].shape())});
  });
}

}  // namespace

KernelTable norm_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"layer_norm", forward<true>, nullptr, true},
      {"rms_norm", forward<false>, nullptr, true},
      {"layer_norm_grad", backward<true>, nullptr, true},
      {"rms_norm_grad", backward<false>, nullptr, true},
      {"batch_norm_train", batch_norm_train, nullptr, true},
      {"channel_affine", channel_affine, nullptr, true},
      {"channel_sums", channel_sums, nullptr, true},
      {"channel_mix", channel_mix, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
