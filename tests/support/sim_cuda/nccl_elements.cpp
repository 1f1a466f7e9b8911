#include "tests/support/sim_cuda/nccl_elements.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tests/support/sim_cuda/machine.h"

namespace sim_cuda::nccl {

size_t size_of(ncclDataType_t t) {
  switch (t) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

namespace {

template <class T, class F>
void fold(T* to, const T* from, size_t n, F f) {
  for (size_t i = 0; i < n; ++i) to[i] = f(to[i], from[i]);
}
template <class T>
void fold(std::byte* to, const std::byte* from, size_t n, ncclRedOp_t op) {
  auto* t = reinterpret_cast<T*>(to);
  const auto* f = reinterpret_cast<const T*>(from);
  const auto as = [](auto g) {
    return [g](T a, T b) {
      if constexpr (std::is_arithmetic_v<T>)
        return static_cast<T>(g(a, b));
      else
        return T(g(static_cast<float>(a), static_cast<float>(b)));
    };
  };
  switch (op) {
    case ncclProd:
      return fold(t, f, n, as([](auto a, auto b) { return a * b; }));
    case ncclMax:
      return fold(t, f, n, as([](auto a, auto b) { return a > b ? a : b; }));
    case ncclMin:
      return fold(t, f, n, as([](auto a, auto b) { return a < b ? a : b; }));
    default:
      return fold(t, f, n, as([](auto a, auto b) { return a + b; }));
  }
}
template <class F>
void with_type(ncclDataType_t type, F&& f) {
  switch (type) {
    case ncclInt8:
      return f(int8_t{});
    case ncclUint8:
      return f(uint8_t{});
    case ncclInt32:
      return f(int32_t{});
    case ncclUint32:
      return f(uint32_t{});
    case ncclInt64:
      return f(int64_t{});
    case ncclUint64:
      return f(uint64_t{});
    case ncclFloat16:
      return f(__half{});
    case ncclBfloat16:
      return f(__nv_bfloat16{});
    case ncclFloat32:
      return f(float{});
    case ncclFloat64:
      return f(double{});
    default:
      throw Fault{"a sum of float8, which the simulation does not have"};
  }
}
}  // namespace

void reduce_into(std::byte* to, const std::byte* from, size_t n, ncclDataType_t type, ncclRedOp_t op) {
  with_type(type, [&](auto t) { fold<decltype(t)>(to, from, n, op); });
}
void divide(std::byte* to, size_t n, ncclDataType_t type, int by) {
  with_type(type, [&](auto t) {
    using T = decltype(t);
    auto* p = reinterpret_cast<T*>(to);
    for (size_t i = 0; i < n; ++i)
      if constexpr (std::is_arithmetic_v<T>)
        p[i] = static_cast<T>(p[i] / static_cast<T>(by));
      else
        p[i] = T(static_cast<float>(p[i]) / static_cast<float>(by));
  });
}

}  // namespace sim_cuda::nccl
