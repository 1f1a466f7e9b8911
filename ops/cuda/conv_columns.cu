// Convolution as products with columns, which are what the window sees at each of its places, for as many
// images at a time as a bounded piece of memory holds. Of halves they are halves, which the matrix unit
// multiplies.
#include "core/tensor/elements.h"
#include "ops/cuda/conv.cuh"
#include "ops/cuda/gemm.h"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

constexpr int64_t kColumnBytes = 64 << 20;

// to[image, k, place], with steps of its own: element k of the window when it is at `place` of the image.
template <class T>
struct ToColumns {
  T* to;
  const T* x;
  ConvSizes s;
  int64_t image_step, k_step;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, to, x);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t plane = s.out[0] * s.out[1], place = i % plane, rest = i / plane;
    const int64_t k = rest % s.window_size(), image = rest / s.window_size();
    const int64_t j = k % s.kernel[1], row = k / s.kernel[1] % s.kernel[0];
    const int64_t py = s.reach(0, place / s.out[1], row), px = s.reach(1, place % s.out[1], j);
    const bool inside = py >= 0 && py < s.in[0] && px >= 0 && px < s.in[1];
    to[image * image_step + k * k_step + place] =
        inside ? x[s.in_place(image, k / (s.kernel[0] * s.kernel[1]), py, px)] : T{0};
  }
};

// The gradient of an element of the image: what all columns that have it say, in a fixed order.
// T: what is stored; A: what is summed.
template <class T, class A>
struct FromColumns {
  T* dx;
  const A* columns;
  ConvSizes s;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dx, columns);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t px = at % s.in[1], rest = at / s.in[1], py = rest % s.in[0];
    const int64_t c = rest / s.in[0] % s.channels, image = rest / s.in[0] / s.channels;
    const A* channel = columns + (image * s.channels + c) * s.kernel[0] * s.kernel[1] * s.out[0] * s.out[1];
    A sum = 0;
    for (int64_t i = 0; i < s.kernel[0]; ++i) {
      const int64_t oy = s.from(0, py, i);
      if (oy < 0) continue;
      for (int64_t j = 0; j < s.kernel[1]; ++j) {
        const int64_t ox = s.from(1, px, j);
        if (ox >= 0) sum += channel[((i * s.kernel[1] + j) * s.out[0] + oy) * s.out[1] + ox];
      }
    }
    dx[at] = static_cast<T>(sum);
  }
};

template <class T>
struct FillBias {
  T* y;
  const T* bias;
  int64_t outputs, plane;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, y, bias);
  }
  __device__ void operator()(int64_t i) const { y[i] = bias[i / plane % outputs]; }
};

// Calls f with the first of some images and their number.
template <class F>
void in_chunks(const ConvSizes& s, size_t item, F&& f) {
  const int64_t bytes = s.window_size() * s.out[0] * s.out[1] * static_cast<int64_t>(item);
  const int64_t at_once = std::clamp<int64_t>(kColumnBytes / std::max<int64_t>(bytes, 1), 1, s.n);
  for (int64_t first = 0; first < s.n; first += at_once) f(first, std::min(at_once, s.n - first));
}

template <class T>
void forward(const char* name, const ConvSizes& s, const Tensor& x, const Tensor& w, const Tensor& bias,
             const Tensor& y) {
  const int64_t plane = s.out[0] * s.out[1], k = s.window_size();
  if (bias.defined())
    for_each(name, y.device(), y.numel(),
             FillBias<T>{elements<T>(y), elements<const T>(bias), s.outputs, plane});
  if (k == 0) return bias.defined() ? void() : fill_elements(y, 0);
  in_chunks(s, sizeof(T), [&](int64_t first, int64_t count) {
    const T* columns = elements<const T>(x) + first * s.image_size();
    Tensor memory;
    if (!s.pointwise()) {
      memory = scratch<T>(count * k * plane, y.device());
      for_each(name, y.device(), count * k * plane,
               ToColumns<T>{elements<T>(memory), columns, s, k * plane, plane});
      columns = elements<const T>(memory);
    }
    T* to = elements<T>(y) + first * s.outputs * plane;
    gemm(name, y.device(),
         {y.dtype(),
          y.dtype(),
          s.outputs,
          plane,
          k,
          count,
          {elements<const T>(w), k},
          {columns, plane, false, k * plane},
          bias.defined() ? to : nullptr,
          to});
  });
}

// What columns of halves say is summed in float32.
template <class T, class A>
void input_grad(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& w, const Tensor& dx) {
  const int64_t plane = s.out[0] * s.out[1], k = s.window_size();
  const bool direct = s.pointwise();
  in_chunks(s, sizeof(A), [&](int64_t first, int64_t count) {
    T* to = elements<T>(dx) + first * s.image_size();
    const Tensor memory = direct ? Tensor() : scratch<A>(count * k * plane, dx.device());
    gemm(name, dx.device(),
         {dx.dtype(),
          direct ? dx.dtype() : compute_dtype(dx.dtype()),
          k,
          plane,
          s.outputs,
          count,
          {elements<const T>(w), k, true},
          {elements<const T>(g) + first * s.outputs * plane, plane, false, s.outputs * plane},
          nullptr,
          direct ? static_cast<void*>(to) : elements<A>(memory)});
    if (!direct)
      for_each(name, dx.device(), count * s.image_size(),
               FromColumns<T, A>{to, elements<const A>(memory), s});
  });
}

// Columns and gradients of several images lie next to each other, so that one product sums over all of them.
// `dw`: of halves in float32.
template <class T>
void weight_grad(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& x, const Tensor& dw) {
  const int64_t plane = s.out[0] * s.out[1], k = s.window_size();
  in_chunks(s, sizeof(T), [&](int64_t first, int64_t count) {
    const Tensor memory = scratch<T>(count * k * plane, dw.device());
    for_each(name, dw.device(), count * k * plane,
             ToColumns<T>{elements<T>(memory), elements<const T>(x) + first * s.image_size(), s, plane,
                          count * plane});
    const Tensor by_output = g.alias({s.outputs, count, plane}, {plane, s.outputs * plane, 1},
                                     g.storage_offset() + first * s.outputs * plane)
                                 .contiguous_data();
    gemm(name, dw.device(),
         {g.dtype(),
          dw.dtype(),
          s.outputs,
          k,
          count * plane,
          1,
          {elements<const T>(by_output), count * plane},
          {elements<const T>(memory), count * plane, true},
          first ? dw.address() : nullptr,
          dw.address()});
  });
}

}  // namespace

void conv_by_columns(const char* name, const ConvSizes& s, const Tensor& x, const Tensor& w,
                     const Tensor& bias, const Tensor& y) {
  visit_stored(y.dtype(), [&](auto stored, auto) { forward<decltype(stored)>(name, s, x, w, bias, y); });
}
void conv_input_grad_by_columns(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& w,
                                const Tensor& dx) {
  visit_stored(dx.dtype(), [&](auto stored, auto computed) {
    input_grad<decltype(stored), decltype(computed)>(name, s, g, w, dx);
  });
}
void conv_weight_grad_by_columns(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& x,
                                 const Tensor& dw) {
  const Tensor sums = is_half(dw.dtype()) ? empty(dw.shape(), {float32, dw.device()}) : dw;
  visit_stored(dw.dtype(), [&](auto stored, auto) {
    using T = decltype(stored);
    weight_grad<T>(name, s, g, x, sums);
    if constexpr (sizeof(T) == 2) map1<T, float>(name, sums, dw, As<T>{});
  });
}

}  // namespace troupe::ops::on_cuda
