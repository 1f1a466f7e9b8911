// Kernels of ops/layer_norm.h and ops/batch_norm.h.
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

template <class T>
struct Statistics {
  T mean = 0, scale = 0;  // scale: 1 / deviation
};

// The rounding of the mean shows in the sum of the deviations from it, and is taken off: a row of equal
// numbers gives zeros, however small eps (Chan, Golub and LeVeque's corrected two-pass algorithm).
template <bool centered, class T>
__device__ Statistics<T> statistics(const T* x, int64_t n, T eps) {
  Statistics<T> s;
  if constexpr (centered) {
    T sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    s.mean = block_sum(sum) / static_cast<T>(n);
  }
  T squares = 0, deviations = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const T d = x[i] - s.mean;
    squares += d * d;
    deviations += d;
  }
  squares = block_sum(squares);
  if constexpr (centered) {
    deviations = block_sum(deviations);
    const T lost = deviations / static_cast<T>(n);
    s.mean += lost;
    squares -= deviations * lost;
    if (squares < 0) squares = 0;
  }
  s.scale = 1 / std::sqrt(squares / static_cast<T>(n) + eps);
  if constexpr (centered)  // squares beyond T's range: no number is right
    if (s.scale == 0) s.scale = std::numeric_limits<T>::quiet_NaN();
  return s;
}

template <class T, bool centered>
struct NormForward {
  T* out;
  const T *x, *weight, *bias;
  int64_t n;
  T eps;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x, weight, bias);
  }
  __device__ void operator()(int64_t row) const {
    const T* in = x + row * n;
    const Statistics<T> s = statistics<centered>(in, n, eps);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const T y = (in[i] - s.mean) * s.scale * weight[i];
      out[row * n + i] = bias ? y + bias[i] : y;
    }
  }
};
template <bool centered>
void forward(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), weight = c.in[1].contiguous_data();
  const Tensor bias = c.in.size() == 3 ? c.in[2].contiguous_data() : Tensor();
  const int64_t n = weight.numel();
  if (n == 0) return;
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row(
        c.name(), x.device(), x.numel() / n, n,
        NormForward<T, centered>{elements<T>(out[0]), elements<const T>(x), elements<const T>(weight),
                                 elements<const T>(bias), n, static_cast<T>(c.attrs.number("eps"))});
  });
}

// The gradient of x, and the statistics of each row for the gradients of weight and bias.
template <class T, bool centered>
struct NormBackward {
  T *dx, *stats;
  const T *g, *x, *weight;
  int64_t n;
  T eps;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dx, stats, g, x, weight);
  }
  __device__ void operator()(int64_t row) const {
    const T *in = x + row * n, *gradient = g + row * n;
    const Statistics<T> s = statistics<centered>(in, n, eps);
    T first = 0, second = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const T gw = gradient[i] * weight[i];
      first += gw;
      second += gw * (in[i] - s.mean);
    }
    first = block_sum(first);
    second = block_sum(second);
    const T k = 1 / static_cast<T>(n), shift = centered ? first * k : T{0};
    const T slope = second * k * s.scale * s.scale;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const T d = in[i] - s.mean;
      dx[row * n + i] = (gradient[i] * weight[i] - shift - d * slope) * s.scale;
    }
    if (threadIdx.x == 0) {
      stats[2 * row] = s.mean;
      stats[2 * row + 1] = s.scale;
    }
  }
};

constexpr int64_t kRows = 64;  // whose gradients of the weight are one term

template <class T>
struct WeightTerms {
  T* terms;  // [pieces, 2, n]
  const T *g, *x, *stats;
  int64_t rows, n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, terms, g, x, stats);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t piece = i / n, column = i % n;
    const int64_t last = (piece + 1) * kRows < rows ? (piece + 1) * kRows : rows;
    T dw = 0, db = 0;
    for (int64_t r = piece * kRows; r < last; ++r) {
      const T gradient = g[r * n + column];
      dw += gradient * ((x[r * n + column] - stats[2 * r]) * stats[2 * r + 1]);
      db += gradient;
    }
    terms[2 * piece * n + column] = dw;
    terms[(2 * piece + 1) * n + column] = db;
  }
};
template <class T>
struct WeightSums {
  T *dw, *db;  // db: null if there is none
  const T* terms;
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
    dw[i] = static_cast<T>(w);
    if (db) db[i] = static_cast<T>(b);
  }
};
template <bool centered>
void backward(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data(),
               weight = c.in[2].contiguous_data();
  const int64_t n = weight.numel();
  if (n == 0) return;
  const int64_t rows = x.numel() / n, pieces = (rows + kRows - 1) / kRows;
  const Device device = x.device();
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor stats = scratch<T>(2 * rows, device), terms = scratch<T>(2 * pieces * n, device);
    for_each_row(c.name(), device, rows, n,
                 NormBackward<T, centered>{elements<T>(out[0]), elements<T>(stats), elements<const T>(g),
                                           elements<const T>(x), elements<const T>(weight), n,
                                           static_cast<T>(c.attrs.number("eps"))});
    for_each(c.name(), device, pieces * n,
             WeightTerms<T>{elements<T>(terms), elements<const T>(g), elements<const T>(x),
                            elements<const T>(stats), rows, n});
    for_each(c.name(), device, n,
             WeightSums<T>{elements<T>(out[1]), centered ? elements<T>(out[2]) : nullptr,
                           elements<const T>(terms), pieces, n});
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
template <class T>
struct ChannelStatistics {
  T *mean, *var, *center, *scale;
  const T *x, *weight;
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
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<double>(x[l.at(k, i)]);
    const double m = block_sum(sum) / count;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const double d = static_cast<double>(x[l.at(k, i)]) - m;
      squares += d * d;
      deviations += d;
    }
    squares = block_sum(squares);
    deviations = block_sum(deviations);
    const double rough = (squares - deviations * deviations / count) / count, v = rough > 0 ? rough : 0;
    const T of_mean = static_cast<T>(m), of_var = static_cast<T>(std::isnan(squares) ? squares : v);
    const double deviation = std::sqrt(static_cast<double>(of_var) + eps);
    if (threadIdx.x == 0) {
      mean[k] = of_mean;
      var[k] = of_var;
    }
    for (int64_t i = k * together + threadIdx.x; i < (k + 1) * together; i += blockDim.x) {
      center[i] = of_mean;
      scale[i] = static_cast<T>(static_cast<double>(weight[i]) / deviation);
    }
  }
};
template <class T>
struct ChannelAffine {
  T* y;
  const T *x, *center, *scale, *shift;
  Layout l;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, y, x, center, scale, shift);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t k = l.channel_of(i);
    y[i] = (x[i] - center[k]) * scale[k] + shift[k];
  }
};
void batch_norm_train(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), weight = c.in[1].contiguous_data(),
               bias = c.in[2].contiguous_data();
  const Layout l(x.shape());
  const int64_t together = c.attrs.integer("together");
  const Layout joined = l.joined(together);
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor of_channels = scratch<T>(2 * l.channels, x.device());
    T *center = elements<T>(of_channels), *scale = center + l.channels;
    for_each_row(
        c.name(), x.device(), joined.channels, joined.per_channel(),
        ChannelStatistics<T>{elements<T>(out[1]), elements<T>(out[2]), center, scale, elements<const T>(x),
                             elements<const T>(weight), joined, together, c.attrs.number("eps")});
    for_each(c.name(), x.device(), x.numel(),
             ChannelAffine<T>{elements<T>(out[0]), elements<const T>(x), center, scale,
                              elements<const T>(bias), l});
  });
}
void channel_affine(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), center = c.in[1].contiguous_data(),
               scale = c.in[2].contiguous_data(), shift = c.in[3].contiguous_data();
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), x.device(), x.numel(),
             ChannelAffine<T>{elements<T>(out[0]), elements<const T>(x), elements<const T>(center),
                              elements<const T>(scale), elements<const T>(shift), Layout(x.shape())});
  });
}

template <class T>
struct ChannelSums {
  T *first, *second;
  const T *g, *x, *center;
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
      const double v = static_cast<double>(g[at]);
      a += v;
      b += v * (static_cast<double>(x[at]) - m);
    }
    a = block_sum(a);
    b = block_sum(b);
    if (threadIdx.x) return;
    first[k] = static_cast<T>(a);
    second[k] = static_cast<T>(b);
  }
};
void channel_sums(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data(),
               center = c.in[2].contiguous_data();
  const Layout l(x.shape());
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row(c.name(), x.device(), l.channels, l.per_channel(),
                 ChannelSums<T>{elements<T>(out[0]), elements<T>(out[1]), elements<const T>(g),
                                elements<const T>(x), elements<const T>(center), l});
  });
}

template <class T>
struct ChannelMix {
  T* out;
  const T *g, *x, *center, *p, *q, *r;
  Layout l;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g, x, center, p, q, r);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t k = l.channel_of(i);
    out[i] = p[k] * g[i] + (q[k] * (x[i] - center[k]) + r[k]);
  }
};
void channel_mix(const Call& c, Tensors& out) {
  Tensor in[6];
  for (size_t i = 0; i < 6; ++i) in[i] = c.in[i].contiguous_data();
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), out[0].device(), out[0].numel(),
             ChannelMix<T>{elements<T>(out[0]), elements<const T>(in[0]), elements<const T>(in[1]),
                           elements<const T>(in[2]), elements<const T>(in[3]), elements<const T>(in[4]),
                           elements<const T>(in[5]), Layout(out[0].shape())});
  });
}

}  // namespace

KernelTable norm_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"layer_norm", forward<true>},          {"rms_norm", forward<false>},
      {"layer_norm_grad", backward<true>},    {"rms_norm_grad", backward<false>},
      {"batch_norm_train", batch_norm_train}, {"channel_affine", channel_affine},
      {"channel_sums", channel_sums},         {"channel_mix", channel_mix},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
