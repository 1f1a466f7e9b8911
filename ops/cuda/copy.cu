// Kernels of ops/view.h and ops/dropout.h: each element of the result is one of the input, or 0.
#include "core/base/generator.h"
#include "ops/cuda/elementwise.cuh"

namespace troupe::ops::on_cuda {
namespace {

template <class R>
struct Convert {
  template <class T>
  __device__ R operator()(T x) const {
    return convert<R>(x);
  }
};
void to(const Call& c, Tensors& out) {
  visit_dtype(c.in[0].dtype(), [&](auto from) {
    visit_dtype(out[0].dtype(), [&](auto target) {
      using T = decltype(from);
      using R = decltype(target);
      map1<R, T>(c.name(), c.in[0], out[0], Convert<R>{});
    });
  });
}

void copy(const char* name, const Tensor& x, const Tensor& out) {
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    map1<T, T>(name, x, out, Same{});
  });
}
void clone(const Call& c, Tensors& out) { copy(c.name(), c.in[0], out[0]); }

// Reads x backwards along the flipped dimensions: a view with negative strides.
void flip(const Call& c, Tensors& out) {
  const Tensor& x = c.in[0];
  if (x.numel() == 0) return;
  Shape strides = x.strides();
  int64_t offset = x.storage_offset();
  for (int64_t dim : c.attrs.ints("dims")) {
    const int d = x.shape().axis(dim, c.name());
    if (x.dim() == 0) break;
    offset += (x.shape()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  copy(c.name(), x.alias(x.shape(), strides, offset), out[0]);
}

// What lies on one side of a diagonal stays.
template <class T, bool lower>
struct Triangle {
  T* out;
  const T* x;
  int64_t rows, columns, diagonal;
  Places<1> places;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t above = i % columns - i / columns % rows;
    int64_t at[1];
    places.find(i, at);
    out[i] = (lower ? above <= diagonal : above >= diagonal) ? x[at[0]] : T{};
  }
};
template <bool lower>
void keep_triangle(const Call& c, Tensors& out) {
  const Tensor& x = c.in[0];
  const int r = x.dim();
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), x.device(), x.numel(),
             Triangle<T, lower>{elements<T>(out[0]),
                                elements<const T>(x),
                                x.shape()[r - 2],
                                x.shape()[r - 1],
                                c.attrs.integer("diagonal"),
                                {x.shape(), {x.strides()}}});
  });
}

// What a step along one dimension reached gets its element back, the rest 0.
template <class T>
struct SliceGrad {
  T* out;
  const T* g;
  int64_t size, inner, start, step, count;
  Places<1> places;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t j = i % inner, rest = i / inner, from = rest % size - start, o = rest / size;
    T value{};
    if (from >= 0 && from % step == 0 && from / step < count) {
      int64_t at[1];
      places.find((o * count + from / step) * inner + j, at);
      value = g[at[0]];
    }
    out[i] = value;
  }
};
void slice_grad(const Call& c, Tensors& out) {
  const Tensor &to = out[0], &g = c.in[0];
  if (to.numel() == 0) return;
  const int dim = to.shape().axis(c.attrs.integer("dim"), c.name());
  const Around a = around(to.shape(), dim);
  const int64_t given = c.attrs.integer("start"),
                start = std::max<int64_t>(given < 0 ? given + a.size : given, 0);
  const int64_t count = g.shape()[dim], step = count > 1 ? c.attrs.integer("step") : 1;
  visit_dtype(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), to.device(), to.numel(),
             SliceGrad<T>{elements<T>(to),
                          elements<const T>(g),
                          a.size,
                          a.inner,
                          start,
                          step,
                          count,
                          {g.shape(), {g.strides()}}});
  });
}

// Element i is decided by a hash of the seed and i, the same as on the CPU.
// T: what is stored; A: what is computed with.
template <class T, class A>
struct Dropout {
  T* out;
  const T* x;
  uint64_t seed, limit;
  A scale;
  Places<1> places;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t i) const {
    const uint64_t number = splitmix64(seed + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(i));
    int64_t at[1];
    places.find(i, at);
    out[i] = static_cast<T>((number >> 11) < limit ? A{0} : static_cast<A>(x[at[0]]) * scale);
  }
};
void dropout(const Call& c, Tensors& out) {
  const Tensor& x = c.in[0];
  const double p = c.attrs.number("p");
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), x.device(), x.numel(),
             Dropout<T, A>{elements<T>(out[0]),
                           elements<const T>(x),
                           static_cast<uint64_t>(c.attrs.integer("seed")),
                           static_cast<uint64_t>(std::ldexp(p, 53)),
                           static_cast<A>(1 / (1 - p)),
                           {x.shape(), {x.strides()}}});
  });
}

}  // namespace

KernelTable copy_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"to", to},
      {"clone", clone},
      {"flip", flip},
      {"tril", keep_triangle<true>},
      {"triu", keep_triangle<false>},
      {"slice_grad", slice_grad},
      {"dropout", dropout, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
