// Kernels of ops/pool.h. Windows of 2 x 2 side by side, which nearly all networks use, have loops of their
// own.
#include <algorithm>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/cpu/loops.h"
#include "ops/window.h"

namespace troupe::ops::cpu {
namespace {

// Planes of images, and how the window goes over each.
struct Planes {
  Window w;
  int64_t count = 0;
  Pair in{}, out{};

  Planes(const Call& c, const Tensor& image, const Tensor& pooled) : w(pool_window(c)) {
    for (int i = 0; i < 2; ++i) {
      in[static_cast<size_t>(i)] = image.shape()[2 + i];
      out[static_cast<size_t>(i)] = pooled.shape()[2 + i];
    }
    count = image.shape()[0] * image.shape()[1];
  }
  int64_t in_size() const { return in[0] * in[1]; }
  int64_t out_size() const { return out[0] * out[1]; }
  bool is_2x2() const {
    const Pair two{2, 2}, none{0, 0};
    return w.kernel == two && w.stride == two && w.padding == none;
  }
};

// Calls f(plane) for all, on several threads if they are many.
template <class F>
void for_each_plane(const Planes& p, F f) {
  const int64_t size = std::max<int64_t>(p.in_size(), 1), several = std::max<int64_t>(kGrain / size, 1);
  parallel_for((p.count + several - 1) / several, static_cast<double>(several * size), [&](int64_t piece) {
    for (int64_t i = piece * several, end = std::min(i + several, p.count); i < end; ++i) f(i);
  });
}

// Calls f(place, y0, y1, x0, x1) for every window of a plane: what of it lies inside the image.
template <class F>
void for_each_window(const Planes& p, F f) {
  const auto range = [&](size_t d, int64_t at) {
    const int64_t start = at * p.w.stride[d] - p.w.padding[d];
    return Pair{std::max<int64_t>(start, 0), std::min(start + p.w.kernel[d], p.in[d])};
  };
  for (int64_t oy = 0, place = 0; oy < p.out[0]; ++oy) {
    const Pair rows = range(0, oy);
    for (int64_t ox = 0; ox < p.out[1]; ++ox, ++place) {
      const Pair columns = range(1, ox);
      f(place, rows[0], rows[1], columns[0], columns[1]);
    }
  }
}

// Where the first largest element of a window is; the last NaN if there is one.
template <class T>
int64_t largest(const T* x, int64_t width, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
  int64_t at = y0 * width + x0;
  for (int64_t i = y0; i < y1; ++i)
    for (int64_t j = x0; j < x1; ++j) {
      const T v = x[i * width + j];
      if (v > x[at] || v != v) at = i * width + j;
    }
  return at;
}

// The four elements of the windows of 2 x 2 in two rows; f(a, b, c, d, i) for window i.
template <class T, class F>
[[gnu::always_inline]] inline void each_2x2(const T* top, const T* bottom, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) f(top[2 * i], top[2 * i + 1], bottom[2 * i], bottom[2 * i + 1], i);
}

template <class T>
T larger(T a, T b) {
  return b > a || b != b ? b : a;
}

}  // namespace

void max_pool2d(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Planes p(c, x, out[0]);
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t i) {
      const T* from = x.data<T>() + i * p.in_size();
      T* to = out[0].data<T>() + i * p.out_size();
      if (!p.is_2x2()) {
        for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
          to[place] = from[largest(from, p.in[1], y0, y1, x0, x1)];
        });
        return;
      }
      const int64_t rows = p.out[0], columns = p.out[1], width = p.in[1];
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t r = 0; r < rows; ++r) {
          T* __restrict row = to + r * columns;
          each_2x2(
              from + 2 * r * width, from + (2 * r + 1) * width,
              columns, [row](T a, T b, T e, T f, int64_t k) __attribute__((always_inline)) {
                row[k] = larger(larger(a, b), larger(e, f));
              });
        }
      });
    });
  });
}

void max_pool2d_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data();
  const Planes p(c, x, g);
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t i) {
      const T *from = x.data<T>() + i * p.in_size(), *grad = g.data<T>() + i * p.out_size();
      T* to = out[0].data<T>() + i * p.in_size();
      const int64_t rows = p.out[0], columns = p.out[1], width = p.in[1];
      if (!p.is_2x2() || p.in[0] != 2 * rows || width != 2 * columns) std::fill_n(to, p.in_size(), T{0});
      if (!p.is_2x2()) {
        for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
          to[largest(from, p.in[1], y0, y1, x0, x1)] += grad[place];
        });
        return;
      }
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t r = 0; r < rows; ++r) {
          T* __restrict top = to + 2 * r * width, * __restrict bottom = top + width;
          const T* __restrict gs = grad + r * columns;
          each_2x2(
              from + 2 * r * width, from + (2 * r + 1) * width,
              columns, [=](T a, T b, T e, T f, int64_t k) __attribute__((always_inline)) {
                const T ab = larger(a, b), ef = larger(e, f), v = gs[k];
                const bool below = ef > ab || ef != ef, right = b > a || b != b, right2 = f > e || f != f;
                const T upper = below ? T{0} : v, lower = below ? v : T{0};
                top[2 * k] = right ? T{0} : upper;
                top[2 * k + 1] = right ? upper : T{0};
                bottom[2 * k] = right2 ? T{0} : lower;
                bottom[2 * k + 1] = right2 ? lower : T{0};
              });
        }
      });
    });
  });
}

void max_pool2d_pick(const Call& c, Tensors& out) {
  const Tensor values = c.in[0].contiguous_data(), x = c.in[1].contiguous_data();
  const Planes p(c, x, out[0]);
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t i) {
      const T *from = x.data<T>() + i * p.in_size(), *value = values.data<T>() + i * p.in_size();
      T* to = out[0].data<T>() + i * p.out_size();
      for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
        to[place] = value[largest(from, p.in[1], y0, y1, x0, x1)];
      });
    });
  });
}

void avg_pool2d(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Planes p(c, x, out[0]);
  const double scale = 1 / (static_cast<double>(p.w.kernel[0]) * static_cast<double>(p.w.kernel[1]));
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t i) {
      const T* from = x.data<T>() + i * p.in_size();
      T* to = out[0].data<T>() + i * p.out_size();
      for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
        T total{0};
        for (int64_t r = y0; r < y1; ++r)
          for (int64_t q = x0; q < x1; ++q) total += from[r * p.in[1] + q];
        to[place] = total * static_cast<T>(scale);
      });
    });
  });
}

void avg_pool2d_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data();
  const Planes p(c, out[0], g);
  const double scale = 1 / (static_cast<double>(p.w.kernel[0]) * static_cast<double>(p.w.kernel[1]));
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t i) {
      const T* grad = g.data<T>() + i * p.out_size();
      T* to = out[0].data<T>() + i * p.in_size();
      std::fill_n(to, p.in_size(), T{0});
      for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
        const T part = grad[place] * static_cast<T>(scale);
        for (int64_t r = y0; r < y1; ++r)
          for (int64_t q = x0; q < x1; ++q) to[r * p.in[1] + q] += part;
      });
    });
  });
}

}  // namespace troupe::ops::cpu
