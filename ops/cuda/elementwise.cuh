// The loop of all kernels that make each element by itself: a body, called with the element's number.
//
// A body is a plain struct, passed to the device by value. Its visit() names the pointers to device memory
// that it holds; null ones, which stand for what is not there, are left out.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/tensor/convert.h"
#include "ops/cuda/places.cuh"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cuda {

constexpr unsigned kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 14;

/// Calls f for every pointer that is not null.
template <class F, class... P>
void visit_pointers(F& f, P&... pointers) {
  ((pointers ? void(f(pointers)) : void()), ...);
}

template <class Body>
__global__ void each_element(int64_t n, Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) body(i);
}

// body.pack(i) for kPack elements at once, body(i) for those at the end.
template <class Body>
__global__ void each_pack(int64_t n, Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t me = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, packs = n / Body::kPack;
  for (int64_t i = me; i < packs; i += step) body.pack(i * Body::kPack);
  for (int64_t i = packs * Body::kPack + me; i < n; i += step) body(i);
}

/// body(i) for every i in [0, n), in any order; by packs if the body has them and can_pack() is true.
template <class Body>
void for_each(const char* name, Device device, int64_t n, const Body& body) {
  if (n <= 0) return;
  const auto run = [&](auto kernel, int64_t threads) {
    const int64_t blocks = std::min(kMostBlocks, (threads + kThreads - 1) / kThreads);
    cuda::launch(name, device, kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, n, body);
  };
  if constexpr (requires { Body::kPack; })
    if (Body::kPack > 1 && n >= Body::kPack && body.can_pack())
      return run(each_pack<Body>, n / Body::kPack + Body::kPack);
  run(each_element<Body>, n);
}

using cuda::elements;

// The pack of operand k at element i, whose places are flat.
template <int n, int N, class T>
__device__ cuda::Pack<T, n> pack_at(const Places<N>& places, int k, const T* p, int64_t i) {
  if (places.step[0][k]) return cuda::load_pack<n>(p + i);
  cuda::Pack<T, n> same;
  for (int l = 0; l < n; ++l) same.at[l] = p[0];
  return same;
}
template <int n, int N, class T>
bool can_pack_at(const Places<N>& places, int k, const T* p) {
  return !places.step[0][k] || cuda::can_pack<n>(p);
}

template <class R, class A, class F>
struct Map1 {
  R* out;
  const A* a;
  F f;
  Places<1> places;
  template <class G>
  void visit(G&& g) {
    visit_pointers(g, out, a);
  }
  __device__ void operator()(int64_t i) const {
    int64_t at[1];
    places.find(i, at);
    out[i] = f(a[at[0]]);
  }

  static constexpr int kPack = cuda::kPackOf<R, A>;
  bool can_pack() const {
    return places.flat && cuda::can_pack<kPack>(out) && can_pack_at<kPack>(places, 0, a);
  }
  __device__ void pack(int64_t i) const {
    const auto x = pack_at<kPack>(places, 0, a, i);
    cuda::Pack<R, kPack> results;
    for (int l = 0; l < kPack; ++l) results.at[l] = f(x.at[l]);
    cuda::store_pack(out + i, results);
  }
};

template <class R, class A, class B, class F>
struct Map2 {
  R* out;
  const A* a;
  const B* b;
  F f;
  Places<2> places;
  template <class G>
  void visit(G&& g) {
    visit_pointers(g, out, a, b);
  }
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.find(i, at);
    out[i] = f(a[at[0]], b[at[1]]);
  }

  static constexpr int kPack = cuda::kPackOf<R, A, B>;
  bool can_pack() const {
    return places.flat && cuda::can_pack<kPack>(out) && can_pack_at<kPack>(places, 0, a) &&
           can_pack_at<kPack>(places, 1, b);
  }
  __device__ void pack(int64_t i) const {
    const auto x = pack_at<kPack>(places, 0, a, i);
    const auto y = pack_at<kPack>(places, 1, b, i);
    cuda::Pack<R, kPack> results;
    for (int l = 0; l < kPack; ++l) results.at[l] = f(x.at[l], y.at[l]);
    cuda::store_pack(out + i, results);
  }
};

template <class R, class A, class B, class C, class F>
struct Map3 {
  R* out;
  const A* a;
  const B* b;
  const C* c;
  F f;
  Places<3> places;
  template <class G>
  void visit(G&& g) {
    visit_pointers(g, out, a, b, c);
  }
  __device__ void operator()(int64_t i) const {
    int64_t at[3];
    places.find(i, at);
    out[i] = f(a[at[0]], b[at[1]], c[at[2]]);
  }

  static constexpr int kPack = cuda::kPackOf<R, A, B, C>;
  bool can_pack() const {
    return places.flat && cuda::can_pack<kPack>(out) && can_pack_at<kPack>(places, 0, a) &&
           can_pack_at<kPack>(places, 1, b) && can_pack_at<kPack>(places, 2, c);
  }
  __device__ void pack(int64_t i) const {
    const auto x = pack_at<kPack>(places, 0, a, i);
    const auto y = pack_at<kPack>(places, 1, b, i);
    const auto z = pack_at<kPack>(places, 2, c, i);
    cuda::Pack<R, kPack> results;
    for (int l = 0; l < kPack; ++l) results.at[l] = f(x.at[l], y.at[l], z.at[l]);
    cuda::store_pack(out + i, results);
  }
};

/// out[i] = f(x[i], ...), the inputs broadcast to `out`, which is contiguous.
template <class R, class A, class F>
void map1(const char* name, const Tensor& x, const Tensor& out, F f) {
  const Shape& shape = out.shape();
  for_each(name, out.device(), out.numel(),
           Map1<R, A, F>{elements<R>(out), elements<const A>(x), f, {shape, {broadcast_strides(x, shape)}}});
}
template <class R, class A, class B, class F>
void map2(const char* name, const Tensor& x, const Tensor& y, const Tensor& out, F f) {
  const Shape& shape = out.shape();
  for_each(name, out.device(), out.numel(),
           Map2<R, A, B, F>{elements<R>(out),
                            elements<const A>(x),
                            elements<const B>(y),
                            f,
                            {shape, {broadcast_strides(x, shape), broadcast_strides(y, shape)}}});
}
template <class R, class A, class B, class C, class F>
void map3(const char* name, const Tensor& x, const Tensor& y, const Tensor& z, const Tensor& out, F f) {
  const Shape& shape = out.shape();
  for_each(
      name, out.device(), out.numel(),
      Map3<R, A, B, C, F>{
          elements<R>(out),
          elements<const A>(x),
          elements<const B>(y),
          elements<const C>(z),
          f,
          {shape, {broadcast_strides(x, shape), broadcast_strides(y, shape), broadcast_strides(z, shape)}}});
}

/// Calls f with a float or a double.
template <class F>
void visit_floating(DType t, F&& f) {
  if (t == float64)
    f(double{});
  else
    f(float{});
}
/// Calls f with a float, a double or an int64_t.
template <class F>
void visit_numeric(DType t, F&& f) {
  if (t == int64)
    f(int64_t{});
  else
    visit_floating(t, f);
}

/// Calls f with an element of what is stored and one of what is computed with: of halves a float.
template <class F>
void visit_stored(DType t, F&& f) {
  switch (t) {
    case float64:
      return f(double{}, double{});
    case bfloat16:
      return f(BFloat16{}, float{});
    case float16:
      return f(Float16{}, float{});
    default:
      return f(float{}, float{});
  }
}
/// f of halves, computed in float32 and rounded once.
template <class T, class F>
struct OfHalves {
  F f;
  template <class... X>
  __device__ T operator()(X... x) const {
    return static_cast<T>(f(static_cast<float>(x)...));
  }
};
/// The same of numbers: go(element of what is stored, f or f of halves), where f is make(element of what is
/// computed).
template <class Make, class Go>
void visit_halves_too(DType t, Make&& make, Go&& go) {
  if (t == int64) return go(int64_t{}, make(int64_t{}));
  visit_stored(t, [&](auto stored, auto computed) {
    using T = decltype(stored);
    if constexpr (std::is_same_v<T, decltype(computed)>)
      go(stored, make(computed));
    else
      go(stored, OfHalves<T, decltype(make(computed))>{make(computed)});
  });
}

/// out[0] = f(in[0], ...), all in the dtype of the result.
template <class F>
void floating1(const Call& c, Tensors& out, F f) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    map1<T, T>(c.name(), c.in[0], out[0], f);
  });
}
template <class F>
void floating2(const Call& c, Tensors& out, F f) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    map2<T, T, T>(c.name(), c.in[0], c.in[1], out[0], f);
  });
}
template <class F>
void numeric1(const Call& c, Tensors& out, F f) {
  visit_numeric(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    map1<T, T>(c.name(), c.in[0], out[0], f);
  });
}
/// The same of halves, too: computed in float32 and rounded once.
template <class F, class Go>
void with_halves(DType t, const F& f, Go&& go) {
  visit_stored(t, [&](auto stored, auto computed) {
    if constexpr (std::is_same_v<decltype(stored), decltype(computed)>)
      go(stored, f);
    else
      go(stored, OfHalves<decltype(stored), F>{f});
  });
}
template <class F>
void with_halves1(const Call& c, Tensors& out, const F& f) {
  with_halves(out[0].dtype(), f, [&](auto stored, const auto& of_stored) {
    using T = decltype(stored);
    map1<T, T>(c.name(), c.in[0], out[0], of_stored);
  });
}
template <class F>
void with_halves2(const Call& c, Tensors& out, const F& f) {
  with_halves(out[0].dtype(), f, [&](auto stored, const auto& of_stored) {
    using T = decltype(stored);
    map2<T, T, T>(c.name(), c.in[0], c.in[1], out[0], of_stored);
  });
}
template <class F>
void numeric2(const Call& c, Tensors& out, F f) {
  visit_numeric(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    map2<T, T, T>(c.name(), c.in[0], c.in[1], out[0], f);
  });
}

/// The same around the attribute `dim`.
inline Around around_dim(const Call& c, const Shape& shape) {
  return around(shape, shape.axis(c.attrs.integer("dim"), c.name()));
}

/// The sum and the product of integers wrap around instead of overflowing.
template <class T>
__device__ T plus(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class T>
__device__ T times(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

/// An element as another type.
template <class T>
struct As {
  template <class X>
  __device__ T operator()(X x) const {
    return static_cast<T>(x);
  }
};
/// What all kernels that copy do to an element.
struct Same {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};

}  // namespace troupe::ops::on_cuda
