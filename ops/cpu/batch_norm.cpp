// Kernels of ops/norm.h. Sums over a channel are taken in double, in 32 running sums and in a fixed order (a
// loop over 16 would be unrolled before it is vectorized).
#include <algorithm>
#include <cmath>

#include "core/tensor/creation.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr int kLanes = 32;

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
};

struct Two {
  double first = 0, second = 0;
};

// Two sums over a channel: add(i, a, b) adds what element i gives to each.
template <class F>
Two sum_channel(const Layout& l, int64_t channel, F add) {
  Two total;
  vectorized([&total, l, channel, add ]() __attribute__((always_inline)) {
    double a[kLanes] = {}, b[kLanes] = {};
    for (int64_t n = 0; n < l.n; ++n) {
      int64_t i = (n * l.channels + channel) * l.size;
      const int64_t end = i + l.size;
      for (; i + kLanes <= end; i += kLanes)
        for (int k = 0; k < kLanes; ++k) add(i + k, a[k], b[k]);
      for (int k = 0; i < end; ++i, ++k) add(i, a[k], b[k]);
    }
    TROUPE_UNROLL(8)
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int k = 0; k < width; ++k) {
        a[k] += a[k + width];
        b[k] += b[k + width];
      }
    total = {a[0], b[0]};
  });
  return total;
}

// Calls f(channel) for all, on several threads if they are long. `passes`: over the elements.
template <class F>
void for_each_channel(const Layout& l, double passes, F f) {
  parallel_for(l.channels, passes * 0.3 * static_cast<double>(l.per_channel()), f);
}

// Calls f(begin, end, channel) for every run of elements of one channel, inside vectorized().
template <class F>
void for_each_run_of_channel(const Layout& l, F f) {
  const int64_t sample = std::max<int64_t>(l.channels * l.size, 1),
                several = std::max<int64_t>(kGrain / sample, 1);
  parallel_for((l.n + several - 1) / several, 0.2 * static_cast<double>(several * sample),
               [&](int64_t piece) {
                 const int64_t first = piece * several, last = std::min(first + several, l.n);
                 vectorized([ l, f, first, last ]() __attribute__((always_inline)) {
                   int64_t at = first * l.channels * l.size;
                   for (int64_t n = first; n < last; ++n)
                     for (int64_t c = 0; c < l.channels; ++c, at += l.size) f(at, at + l.size, c);
                 });
               });
}

// The inputs of a call as contiguous arrays of T.
template <class T, size_t N>
struct Arrays {
  std::array<Tensor, N> tensors;
  std::array<const T*, N> data;
  explicit Arrays(const Call& c) {
    for (size_t i = 0; i < N; ++i) {
      tensors[i] = c.in[i].contiguous_data();
      data[i] = tensors[i].template data<T>();
    }
  }
};

void batch_norm_train(const Call& c, Tensors& out) {
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Arrays<T, 3> in(c);
    const auto [x, weight, bias] = in.data;
    const Layout l(c.in[0].shape());
    const int64_t together = c.attrs.integer("together");
    const Layout joined = l.joined(together);
    T *y = out[0].data<T>(), *mean = out[1].data<T>(), *var = out[2].data<T>();
    const double count = static_cast<double>(std::max<int64_t>(joined.per_channel(), 1));
    const Tensor of_channels = empty({2, l.channels}, out[0].dtype());
    T *center = of_channels.data<T>(), *scale = center + l.channels;
    for_each_channel(joined, 2, [&](int64_t k) {
      const double m = sum_channel(
                           joined, k,
                           [x = x](int64_t i, double& a, double&)
                               __attribute__((always_inline)) { a += static_cast<double>(x[i]); })
                           .first /
                       count;
      // The second sum would be zero if the mean were exact (Chan, Golub, LeVeque 1983).
      const Two d = sum_channel(
          joined, k, [ x = x, m ](int64_t i, double& a, double& b) __attribute__((always_inline)) {
            const double from_mean = static_cast<double>(x[i]) - m;
            a += from_mean * from_mean;
            b += from_mean;
          });
      const double v = std::max((d.first - d.second * d.second / count) / count, 0.0);
      mean[k] = static_cast<T>(m);
      var[k] = static_cast<T>(std::isnan(d.first) ? d.first : v);
      const double deviation = std::sqrt(static_cast<double>(var[k]) + c.attrs.number("eps"));
      for (int64_t i = k * together; i < (k + 1) * together; ++i) {
        center[i] = mean[k];
        scale[i] = static_cast<T>(static_cast<double>(weight[i]) / deviation);
      }
    });
    for_each_run_of_channel(
        l, [ =, x = x, bias = bias ](int64_t i, int64_t end, int64_t k) __attribute__((always_inline)) {
          const T m = center[k], s = scale[k], b = bias[k];
          TROUPE_INDEPENDENT
          for (; i < end; ++i) y[i] = (x[i] - m) * s + b;
        });
  });
}

void channel_affine(const Call& c, Tensors& out) {
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Arrays<T, 4> in(c);
    const auto [x, center, scale, shift] = in.data;
    T* y = out[0].data<T>();
    for_each_run_of_channel(
        Layout(c.in[0].shape()), [ y, x = x, center = center, scale = scale, shift =
                                   shift ](int64_t i, int64_t end, int64_t k) __attribute__((always_inline)) {
          const T m = center[k], s = scale[k], b = shift[k];
          TROUPE_INDEPENDENT
          for (; i < end; ++i) y[i] = (x[i] - m) * s + b;
        });
  });
}

void channel_sums(const Call& c, Tensors& out) {
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Arrays<T, 3> in(c);
    const Layout l(c.in[0].shape());
    for_each_channel(l, 1, [&](int64_t k) {
      const Two sums = sum_channel(
          l, k,
          [ g = in.data[0], x = in.data[1], m = static_cast<double>(in.data[2][k]) ](
              int64_t i, double& a, double& b) __attribute__((always_inline)) {
            const double v = static_cast<double>(g[i]);
            a += v;
            b += v * (static_cast<double>(x[i]) - m);
          });
      out[0].data<T>()[k] = static_cast<T>(sums.first);
      out[1].data<T>()[k] = static_cast<T>(sums.second);
    });
  });
}

void channel_mix(const Call& c, Tensors& out) {
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Arrays<T, 6> in(c);
    T* to = out[0].data<T>();
    for_each_run_of_channel(
        Layout(c.in[0].shape()),
        [ to, in = in.data ](int64_t i, int64_t end, int64_t k) __attribute__((always_inline)) {
          const T *g = in[0], *x = in[1];
          const T m = in[2][k], p = in[3][k], q = in[4][k], r = in[5][k];
          TROUPE_INDEPENDENT
          for (; i < end; ++i) to[i] = p * g[i] + (q * (x[i] - m) + r);
        });
  });
}

}  // namespace

KernelTable batch_norm_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"batch_norm_train", batch_norm_train},
      {"channel_affine", channel_affine},
      {"channel_sums", channel_sums},
      {"channel_mix", channel_mix},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
