#include "core/cuda/elements.h"

#include <bit>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/memory/backend.h"
#include "core/tensor/convert.h"

namespace troupe::cuda {
namespace {

constexpr unsigned kBlock = 256;
constexpr int64_t kMostAtOnce = int64_t{1} << 30;  // elements of a launch: their numbers fit 32 bits

// Elements of N views of one shape, without the dimensions that are needless: steps of 1, and those that go
// on where the next one ends.
template <int N>
struct Views {
  int rank = 0;
  uint32_t count = 1;
  uint32_t sizes[kMaxDims] = {};
  int64_t strides[N][kMaxDims] = {};

  __host__ __device__ void offsets(uint32_t i, int64_t (&at)[N]) const {
    for (int n = 0; n < N; ++n) at[n] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const uint32_t rest = i / sizes[d];
      const int64_t index = i - rest * sizes[d];
      for (int n = 0; n < N; ++n) at[n] += index * strides[n][d];
      i = rest;
    }
  }
};

// Calls f(views, offsets of their first elements) for parts of the views that one launch can take.
template <int N, class F>
void in_parts(const Shape& shape, const Shape* const (&strides)[N], F&& f) {
  Shape sizes, steps[N];
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    bool joins = !sizes.empty();
    for (int n = 0; n < N && joins; ++n) joins = steps[n].back() == shape[d] * (*strides[n])[d];
    if (joins) {
      sizes.back() *= shape[d];
      for (int n = 0; n < N; ++n) steps[n].back() = (*strides[n])[d];
    } else {
      sizes.push_back(shape[d]);
      for (int n = 0; n < N; ++n) steps[n].push_back((*strides[n])[d]);
    }
  }
  const auto part = [&](const auto& self, const Shape& size, std::array<int64_t, N> from) -> void {
    if (size.numel() > kMostAtOnce) {  // halves of the longest dimension
      int longest = 0;
      for (int d = 1; d < size.rank(); ++d)
        if (size[d] > size[longest]) longest = d;
      Shape half = size, rest = size;
      half[longest] = size[longest] / 2;
      rest[longest] = size[longest] - half[longest];
      self(self, half, from);
      for (int n = 0; n < N; ++n) from[static_cast<size_t>(n)] += half[longest] * steps[n][longest];
      return self(self, rest, from);
    }
    Views<N> views;
    views.rank = size.rank();
    views.count = static_cast<uint32_t>(size.numel());
    for (int d = 0; d < views.rank; ++d) {
      views.sizes[d] = static_cast<uint32_t>(size[d]);
      for (int n = 0; n < N; ++n) views.strides[n][d] = steps[n][d];
    }
    f(views, from);
  };
  part(part, sizes, std::array<int64_t, N>{});
}

__device__ inline uint32_t number() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <class To, class From>
__global__ void copy_kernel(To* to, const From* from, Views<2> views) {
  const uint32_t i = number();
  if (i >= views.count) return;
  int64_t at[2];
  views.offsets(i, at);
  to[at[0]] = convert<To>(from[at[1]]);
}

// The same for neighbours, as many at once as make 16 bytes.
template <class To, class From>
__global__ void convert_kernel(To* to, const From* from, int64_t n) {
  constexpr int kEach = kPackOf<To, From>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, packs = n / kEach;
  const int64_t me = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = me; i < packs; i += step) {
    const auto given = load_pack<kEach>(from + i * kEach);
    Pack<To, kEach> made;
    for (int l = 0; l < kEach; ++l) made.at[l] = convert<To>(given.at[l]);
    store_pack(to + i * kEach, made);
  }
  for (int64_t i = packs * kEach + me; i < n; i += step) to[i] = convert<To>(from[i]);
}

template <class T>
__global__ void fill_kernel(T* to, T value, Views<1> views) {
  const uint32_t i = number();
  if (i >= views.count) return;
  int64_t at[1];
  views.offsets(i, at);
  to[at[0]] = value;
}

template <class T>
__device__ T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) {  // modulo 2^n
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return static_cast<T>(a + b);
  }
}

// The same for neighbours. `out` may be one of the others.
template <class T>
__global__ void add_neighbours_kernel(T* out, const T* a, const T* b, int64_t n) {
  constexpr int kEach = kPackOf<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, packs = n / kEach;
  const int64_t me = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = me; i < packs; i += step) {
    auto x = load_pack<kEach>(a + i * kEach);
    const auto y = load_pack<kEach>(b + i * kEach);
    for (int l = 0; l < kEach; ++l) x.at[l] = sum_of(x.at[l], y.at[l]);
    store_pack(out + i * kEach, x);
  }
  for (int64_t i = packs * kEach + me; i < n; i += step) out[i] = sum_of(a[i], b[i]);
}

template <class T>
__global__ void add_kernel(T* out, const T* a, const T* b, Views<3> views) {
  const uint32_t i = number();
  if (i >= views.count) return;
  int64_t at[3];
  views.offsets(i, at);
  out[at[0]] = sum_of(a[at[1]], b[at[2]]);
}

// An element of `out` may come up several times: one thread adds in the order of the elements.
template <class T>
__global__ void add_in_order_kernel(T* out, const T* b, Views<2> views) {
  for (uint32_t i = 0; i < views.count; ++i) {
    int64_t at[2];
    views.offsets(i, at);
    out[at[0]] = sum_of(out[at[0]], b[at[1]]);
  }
}

// As above where elements come up several times by strides of 0 only: a thread for each of them, which goes
// through the dimensions that repeat it.
template <class T>
__global__ void add_repeated_kernel(T* out, const T* b, Views<2> apart, Views<1> repeated) {
  const uint32_t i = number();
  if (i >= apart.count) return;
  int64_t at[2], more[1];
  apart.offsets(i, at);
  T sum = out[at[0]];
  for (uint32_t k = 0; k < repeated.count; ++k) {
    repeated.offsets(k, more);
    sum = sum_of(sum, b[at[1] + more[0]]);
  }
  out[at[0]] = sum;
}

// Calls f with an unsigned number as large as an element.
template <class F>
void visit_size(size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

template <class To, class From>
void copy_as(const Tensor& to, const Tensor& from) {
  To* const target = elements<To>(to);
  const From* const source = elements<const From>(from);
  constexpr int kEach = kPackOf<To, From>;
  if (to.is_contiguous() && from.is_contiguous() && can_pack<kEach>(target) && can_pack<kEach>(source)) {
    const size_t packs = static_cast<size_t>(to.numel()) / kEach + kEach;
    return launch("copy_elements", to.device(), convert_kernel<To, From>, blocks_for(packs, kBlock),
                  dim3(kBlock), 0, target, source, to.numel());
  }
  in_parts<2>(to.shape(), {&to.strides(), &from.strides()}, [&](const Views<2>& views, const auto& at) {
    launch("copy_elements", to.device(), copy_kernel<To, From>, blocks_for(views.count, kBlock), dim3(kBlock),
           0, target + at[0], source + at[1], views);
  });
}

// Dimensions of size > 1 by falling stride: whether two of their elements can be the same one.
enum class Overlap { no, by_stride_0, otherwise };
Overlap repeats_of(const Tensor& t) {
  Overlap found = Overlap::no;
  Shape sizes, strides;
  for (int d = 0; d < t.dim(); ++d) {
    if (t.shape()[d] <= 1) continue;
    if (t.strides()[d] == 0) {
      found = Overlap::by_stride_0;
      continue;
    }
    int at = 0;
    while (at < sizes.rank() && std::abs(strides[at]) <= std::abs(t.strides()[d])) ++at;
    sizes.insert(at, t.shape()[d]);
    strides.insert(at, t.strides()[d]);
  }
  int64_t reach = 0;  // of the dimensions with smaller strides
  for (int i = 0; i < sizes.rank(); ++i) {
    if (std::abs(strides[i]) <= reach) return Overlap::otherwise;
    reach += (sizes[i] - 1) * std::abs(strides[i]);
  }
  return found;
}

bool same_place(const Tensor& a, const Tensor& b) {
  return a.address() == b.address() && a.strides() == b.strides();
}

// `t`, or a copy if writing to `out` could change elements of it that are still to be read.
Tensor apart_from(const Tensor& t, const Tensor& out) {
  return t.storage() == out.storage() && !same_place(t, out) ? t.clone_data() : t;
}

template <class T>
void add_repeated(const Tensor& out, const Tensor& b) {
  Shape sizes, strides[2], repeats, steps;
  for (int d = 0; d < out.dim(); ++d) {
    const bool repeated = out.strides()[d] == 0 && out.shape()[d] > 1;
    (repeated ? repeats : sizes).push_back(out.shape()[d]);
    (repeated ? steps : strides[1]).push_back(b.strides()[d]);
    if (!repeated) strides[0].push_back(out.strides()[d]);
  }
  in_parts<1>(repeats, {&steps}, [&](const Views<1>& again, const auto& more) {
    in_parts<2>(sizes, {&strides[0], &strides[1]}, [&](const Views<2>& views, const auto& at) {
      launch("add_elements", out.device(), add_repeated_kernel<T>, blocks_for(views.count, kBlock),
             dim3(kBlock), 0, elements<T>(out) + at[0], elements<T>(b) + at[1] + more[0], views, again);
    });
  });
}

}  // namespace

void copy_elements(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  const Tensor source = apart_from(from, to);
  if (to.dtype() == from.dtype()) {
    if (same_place(to, source)) return;
    if (to.is_contiguous() && source.is_contiguous()) {
      Backend& b = backend_of(to.device());
      return b.copy(to.address(), source.address(), to.nbytes(), CopyWay::within, to.device());
    }
    return visit_size(item_size(to.dtype()), [&](auto zero) {
      using T = decltype(zero);
      copy_as<T, T>(to, source);
    });
  }
  visit_dtype(to.dtype(), [&](auto as) {
    visit_dtype(source.dtype(), [&](auto given) {
      if constexpr (!std::is_same_v<decltype(as), decltype(given)>)
        copy_as<decltype(as), decltype(given)>(to, source);
    });
  });
}

void fill_elements(const Tensor& to, const Scalar& value) {
  if (to.numel() == 0) return;
  uint64_t bits = 0;
  visit_dtype(to.dtype(), [&](auto zero) {
    const auto element = value.to<decltype(zero)>();
    std::memcpy(&bits, &element, sizeof element);
  });
  if (bits == 0 && to.is_contiguous())
    return backend_of(to.device()).fill(to.address(), 0, to.nbytes(), to.device());
  visit_size(item_size(to.dtype()), [&](auto zero) {
    using T = decltype(zero);
    in_parts<1>(to.shape(), {&to.strides()}, [&](const Views<1>& views, const auto& at) {
      launch("fill_elements", to.device(), fill_kernel<T>, blocks_for(views.count, kBlock), dim3(kBlock), 0,
             elements<T>(to) + at[0], static_cast<T>(bits), views);
    });
  });
}

void add_elements(const Tensor& out, const Tensor& a, const Tensor& b) {
  if (out.numel() == 0) return;
  const Overlap repeats = out.is_contiguous() ? Overlap::no : repeats_of(out);
  const Tensor first = apart_from(a, out), second = apart_from(b, out);
  visit_dtype(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (repeats == Overlap::by_stride_0) return add_repeated<T>(out, second);
    if (repeats == Overlap::otherwise)
      return in_parts<2>(out.shape(), {&out.strides(), &second.strides()},
                         [&](const Views<2>& views, const auto& at) {
                           launch("add_elements", out.device(), add_in_order_kernel<T>, dim3(1), dim3(1), 0,
                                  elements<T>(out) + at[0], elements<T>(second) + at[1], views);
                         });
    T* const to = elements<T>(out);
    const T *x = elements<const T>(first), *y = elements<const T>(second);
    constexpr int kEach = kPackOf<T>;
    if (out.is_contiguous() && first.is_contiguous() && second.is_contiguous() && can_pack<kEach>(to) &&
        can_pack<kEach>(x) && can_pack<kEach>(y)) {
      const size_t packs = static_cast<size_t>(out.numel()) / kEach + kEach;
      return launch("add_elements", out.device(), add_neighbours_kernel<T>, blocks_for(packs, kBlock),
                    dim3(kBlock), 0, to, x, y, out.numel());
    }
    in_parts<3>(out.shape(), {&out.strides(), &first.strides(), &second.strides()},
                [&](const Views<3>& views, const auto& at) {
                  launch("add_elements", out.device(), add_kernel<T>, blocks_for(views.count, kBlock),
                         dim3(kBlock), 0, to + at[0], x + at[1], y + at[2], views);
                });
  });
}

}  // namespace troupe::cuda
