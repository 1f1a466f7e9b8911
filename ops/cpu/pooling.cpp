// Kernels of ops/pool.h. Windows of 2 x 2 side by side, which nearly all networks use, have loops of their
// own.
#include <algorithm>
#include <limits>

#include "core/tensor/creation.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/dispatch/window.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr int64_t kLanes = 16;

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

// Calls f(begin, end) for pieces of the planes, on several threads if they are many.
template <class F>
void for_each_plane(const Planes& p, F f) {
  const int64_t size = std::max<int64_t>(p.in_size(), 1), several = std::max<int64_t>(kGrain / size, 1);
  parallel_for((p.count + several - 1) / several, static_cast<double>(several * size),
               [&](int64_t piece) { f(piece * several, std::min((piece + 1) * several, p.count)); });
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

// The first of two elements if it is as large; NaN if one is. In the loops without a branch.
template <class T>
[[gnu::always_inline]] inline bool second_is_larger(T a, T b) {
  return static_cast<bool>(static_cast<int>(b > a) | static_cast<int>(b != b));
}

// Pairs of neighbours in the rows that windows of 2 x 2 cover: f(row's element, pair, count) for runs of
// pairs that lie together, which are the whole plane if no column is left over.
template <class F>
[[gnu::always_inline]] inline void for_each_run_of_pairs(const Planes& p, F f) {
  const int64_t rows = 2 * p.out[0], columns = p.out[1];
  if (p.in[1] == 2 * columns) return f(int64_t{0}, int64_t{0}, rows * columns);
  for (int64_t r = 0; r < rows; ++r) f(r * p.in[1], r * columns, columns);
}

// The larger ones of the pairs, [2 rows, columns].
template <class T>
[[gnu::always_inline]] inline void pool_pairs(const Planes& p, const T* x, T* pairs) {
  for_each_run_of_pairs(
      p, [=](int64_t from, int64_t to, int64_t n) __attribute__((always_inline)) {
        const T* in = x + from;
        T* __restrict out = pairs + to;
        for (int64_t i = 0; i < n; ++i) {
          const T a = in[2 * i], b = in[2 * i + 1];
          out[i] = second_is_larger(a, b) ? b : a;
        }
      });
}

// out[i] = f(a[i], b[i], i) for a row of n, in whole vectors: what is written beyond the row is for later
// rows, or padding of kLanes elements, to overwrite. Rows are short: 14 and 7 for the usual networks.
template <class T, class F>
[[gnu::always_inline]] inline void whole_vectors(int64_t n, const T* a, const T* b, T* out, F f) {
  for (int64_t i = 0; i < n; i += kLanes) {
    T result[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) result[l] = f(a[i + l], b[i + l], i + l);
    __builtin_memcpy(out + i, result, sizeof result);
  }
}

// `buffer` has 3 out_size() + 3 kLanes elements.
template <class T>
[[gnu::always_inline]] inline void pool_2x2(const Planes& p, const T* x, T* buffer, T* y) {
  T *const pairs = buffer, *const rows = pairs + 2 * p.out_size() + kLanes;
  pool_pairs(p, x, pairs);
  const int64_t columns = p.out[1];
  for (int64_t r = 0; r < p.out[0]; ++r)
    whole_vectors(
        columns, pairs + 2 * r * columns, pairs + (2 * r + 1) * columns, rows + r * columns,
        [](T a, T b, int64_t) __attribute__((always_inline)) { return second_is_larger(a, b) ? b : a; });
  std::copy_n(rows, p.out_size(), y);
}

// `buffer` has 5 out_size() + 3 kLanes elements.
template <class T>
[[gnu::always_inline]] inline void pool_2x2_grad(const Planes& p, const T* x, const T* g, T* buffer, T* gx) {
  T *const pairs = buffer, *const split = pairs + 2 * p.out_size() + kLanes,
           *const grad = split + 2 * p.out_size() + kLanes;
  pool_pairs(p, x, pairs);
  std::copy_n(g, p.out_size(), grad);
  const int64_t columns = p.out[1];
  for (int64_t r = 0; r < p.out[0]; ++r) {  // the gradient goes to the upper or the lower pair
    const T *top = pairs + 2 * r * columns, *bottom = top + columns, *v = grad + r * columns;
    T* const to = split + 2 * r * columns;
    whole_vectors(
        columns, top, bottom, to, [v](T a, T b, int64_t i) __attribute__((always_inline)) {
          const T value = v[i];
          return second_is_larger(a, b) ? T{0} : value;
        });
    whole_vectors(
        columns, top, bottom, to + columns, [v](T a, T b, int64_t i) __attribute__((always_inline)) {
          const T value = v[i];
          return second_is_larger(a, b) ? value : T{0};
        });
  }
  for_each_run_of_pairs(
      p, [=](int64_t to, int64_t from, int64_t n) __attribute__((always_inline)) {
        const T *in = x + to, *v = split + from;
        T* __restrict out = gx + to;
        for (int64_t i = 0; i < n; ++i) {
          const bool right = second_is_larger(in[2 * i], in[2 * i + 1]);
          out[2 * i] = right ? T{0} : v[i];
          out[2 * i + 1] = right ? v[i] : T{0};
        }
      });
}

void max_pool2d(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Planes p(c, x, out[0]);
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t begin, int64_t end) {
      const Tensor memory = empty({5 * p.out_size() + 3 * kLanes}, x.dtype());
      T* const pairs = memory.data<T>();
      for (int64_t i = begin; i < end; ++i) {
        const T* from = x.data<T>() + i * p.in_size();
        T* to = out[0].data<T>() + i * p.out_size();
        if (p.is_2x2())
          vectorized([ =, &p ]() __attribute__((always_inline)) { pool_2x2(p, from, pairs, to); });
        else
          for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
            to[place] = from[largest(from, p.in[1], y0, y1, x0, x1)];
          });
      }
    });
  });
}

void max_pool2d_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data();
  const Planes p(c, x, g);
  const bool covered = p.is_2x2() && p.in[0] == 2 * p.out[0] && p.in[1] == 2 * p.out[1];
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t begin, int64_t end) {
      const Tensor memory = empty({5 * p.out_size() + 3 * kLanes}, x.dtype());
      T* const pairs = memory.data<T>();
      for (int64_t i = begin; i < end; ++i) {
        const T *from = x.data<T>() + i * p.in_size(), *grad = g.data<T>() + i * p.out_size();
        T* to = out[0].data<T>() + i * p.in_size();
        if (!covered) std::fill_n(to, p.in_size(), T{0});
        if (p.is_2x2())
          vectorized([ =, &p ]() __attribute__((always_inline)) { pool_2x2_grad(p, from, grad, pairs, to); });
        else
          for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
            to[largest(from, p.in[1], y0, y1, x0, x1)] += grad[place];
          });
      }
    });
  });
}

void max_pool2d_pick(const Call& c, Tensors& out) {
  const Tensor values = c.in[0].contiguous_data(), x = c.in[1].contiguous_data();
  const Planes p(c, x, out[0]);
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T *from = x.data<T>() + i * p.in_size(), *value = values.data<T>() + i * p.in_size();
        T* to = out[0].data<T>() + i * p.out_size();
        for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
          to[place] = value[largest(from, p.in[1], y0, y1, x0, x1)];
        });
      }
    });
  });
}

void avg_pool2d(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Planes p(c, x, out[0]);
  const double scale = 1 / (static_cast<double>(p.w.kernel[0]) * static_cast<double>(p.w.kernel[1]));
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* from = x.data<T>() + i * p.in_size();
        T* to = out[0].data<T>() + i * p.out_size();
        for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
          T total{0};
          for (int64_t r = y0; r < y1; ++r)
            for (int64_t q = x0; q < x1; ++q) total += from[r * p.in[1] + q];
          to[place] = total * static_cast<T>(scale);
        });
      }
    });
  });
}

void avg_pool2d_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data();
  const Planes p(c, out[0], g);
  const double scale = 1 / (static_cast<double>(p.w.kernel[0]) * static_cast<double>(p.w.kernel[1]));
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_plane(p, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* grad = g.data<T>() + i * p.out_size();
        T* to = out[0].data<T>() + i * p.in_size();
        std::fill_n(to, p.in_size(), T{0});
        for_each_window(p, [&](int64_t place, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
          const T part = grad[place] * static_cast<T>(scale);
          for (int64_t r = y0; r < y1; ++r)
            for (int64_t q = x0; q < x1; ++q) to[r * p.in[1] + q] += part;
        });
      }
    });
  });
}

}  // namespace

KernelTable pooling_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"max_pool2d", max_pool2d}, {"max_pool2d_grad", max_pool2d_grad}, {"max_pool2d_pick", max_pool2d_pick},
      {"avg_pool2d", avg_pool2d}, {"avg_pool2d_grad", avg_pool2d_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
