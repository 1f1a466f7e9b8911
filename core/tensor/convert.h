// How an element of one type becomes one of another.
#pragma once
#include <cstdint>
#include <type_traits>

#include "core/tensor/dtype.h"

namespace troupe {

/// As PyTorch on x86: anything but 0 is true; integers wrap around modulo 2^n; floating numbers lose their
/// fraction, and those that int64 (int32, for int32) cannot hold, NaN too, become its smallest number. uint8
/// is cut from int64.
template <class To, class From>
constexpr To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, BFloat16> || std::is_same_v<From, Float16>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{};
  } else if constexpr (std::is_same_v<To, int32_t> && std::is_floating_point_v<From>) {
    const double d = static_cast<double>(x);
    return d > -0x1p31 - 1 && d < 0x1p31 ? static_cast<int32_t>(d) : INT32_MIN;
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return static_cast<To>(x >= From(-0x1p63) && x < From(0x1p63) ? static_cast<int64_t>(x) : INT64_MIN);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace troupe
