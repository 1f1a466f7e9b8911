// Kernels of ops/inplace.h; shapes and dtypes are checked there.
#include "ops/cuda/elementwise.cuh"

namespace troupe::ops::on_cuda {
namespace {

// a[i] = f(a[i], b[i], c[i]); halves are computed with as float.
template <class T, class F>
struct Update {
  T* a;
  const T *b, *c;
  F f;
  Places<3> places;
  template <class G>
  void visit(G&& g) {
    visit_pointers(g, a, b, c);
  }
  __device__ void operator()(int64_t i) const {
    using C = std::conditional_t<sizeof(T) == 2, float, T>;
    int64_t at[3];
    places.find(i, at);
    T& to = a[at[0]];
    to = static_cast<T>(f(static_cast<C>(to), static_cast<C>(b[at[1]]), static_cast<C>(c[at[2]])));
  }
};
template <class F>
void update(const Call& call, const Tensor& a, const Tensor& b, const Tensor& c, F f) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    for_each(call.name(), a.device(), a.numel(),
             Update<T, F>{elements<T>(a),
                          elements<const T>(b),
                          elements<const T>(c),
                          f,
                          {a.shape(), {a.strides(), b.strides(), c.strides()}}});
  };
  if (a.dtype() == bfloat16)
    run(BFloat16{});
  else if (a.dtype() == float16)
    run(Float16{});
  else
    visit_floating(a.dtype(), run);
}

struct AddMany {
  double alpha;
  template <class T>
  __device__ T operator()(T x, T y, T) const {
    return x + static_cast<T>(alpha) * y;
  }
};
struct Scale {
  double scale;
  template <class T>
  __device__ T operator()(T x, T, T) const {
    return x * static_cast<T>(scale);
  }
};
struct Affine {
  double scale, shift;
  template <class T>
  __device__ T operator()(T x, T, T) const {
    return x * static_cast<T>(scale) + static_cast<T>(shift);
  }
};
struct AddProduct {
  double value;
  template <class T>
  __device__ T operator()(T x, T y, T z) const {
    return x + static_cast<T>(value) * y * z;
  }
};
struct AddQuotient {
  double value;
  template <class T>
  __device__ T operator()(T x, T y, T z) const {
    return x + static_cast<T>(value) * y / z;
  }
};
struct Lerp {
  double weight;
  template <class T>
  __device__ T operator()(T x, T y, T) const {
    const bool near_x = weight > -0.5 && weight < 0.5;  // as ops::lerp
    return near_x ? x + static_cast<T>(weight) * (y - x) : y - static_cast<T>(1 - weight) * (y - x);
  }
};
struct Larger {
  template <class T>
  __device__ T operator()(T x, T y, T) const {
    return x > y || x != x ? x : y;
  }
};
struct Root {
  template <class T>
  __device__ T operator()(T x, T, T) const {
    return std::sqrt(x);
  }
};

void add(const Call& c, Tensors& out) {
  update(c, out[0], c.in[0], c.in[0], AddMany{c.attrs.number("alpha")});
}
void affine(const Call& c, Tensors& out) {
  const Tensor& a = out[0];
  const double scale = c.attrs.number("scale"), shift = c.attrs.number("shift");
  shift == 0 ? update(c, a, a, a, Scale{scale}) : update(c, a, a, a, Affine{scale, shift});
}
void addcmul(const Call& c, Tensors& out) {
  update(c, out[0], c.in[0], c.in[1], AddProduct{c.attrs.number("value")});
}
void addcdiv(const Call& c, Tensors& out) {
  update(c, out[0], c.in[0], c.in[1], AddQuotient{c.attrs.number("value")});
}
void lerp(const Call& c, Tensors& out) {
  update(c, out[0], c.in[0], c.in[0], Lerp{c.attrs.number("weight")});
}
void maximum(const Call& c, Tensors& out) { update(c, out[0], c.in[0], c.in[0], Larger{}); }
void sqrt(const Call& c, Tensors& out) { update(c, out[0], out[0], out[0], Root{}); }

}  // namespace

KernelTable inplace_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"add_", add},   {"affine_", affine},   {"addcmul_", addcmul}, {"addcdiv_", addcdiv},
      {"lerp_", lerp}, {"maximum_", maximum}, {"sqrt_", sqrt},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
