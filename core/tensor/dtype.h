// Element types of tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/tensor/half.h"

namespace troupe {

/// Element type. The numbers travel on the wire and in files: never reuse one.
enum class DType : uint8_t {
  float32 = 0,
  float64 = 1,
  int64 = 2,
  boolean = 3,
  bfloat16 = 4,
  float16 = 5,
  int32 = 6,
  uint8 = 7
};
inline constexpr int kDTypeCount = 8;

inline constexpr DType float32 = DType::float32;
inline constexpr DType float64 = DType::float64;
inline constexpr DType int64 = DType::int64;
inline constexpr DType boolean = DType::boolean;
inline constexpr DType bfloat16 = DType::bfloat16;
inline constexpr DType float16 = DType::float16;
inline constexpr DType int32 = DType::int32;
inline constexpr DType uint8 = DType::uint8;

/// Bytes per element.
constexpr size_t item_size(DType t) {
  switch (t) {
    case DType::float32:
      return 4;
    case DType::float64:
      return 8;
    case DType::int64:
      return 8;
    case DType::boolean:
    case DType::uint8:
      return 1;
    case DType::bfloat16:
    case DType::float16:
      return 2;
    case DType::int32:
      return 4;
  }
  return 0;
}
constexpr std::string_view name(DType t) {
  switch (t) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::int64:
      return "int64";
    case DType::boolean:
      return "bool";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
    case DType::int32:
      return "int32";
    case DType::uint8:
      return "uint8";
  }
  return "?";
}

/// bfloat16 or float16: for storage, computed with as float32.
constexpr bool is_half(DType t) { return t == DType::bfloat16 || t == DType::float16; }
/// int32 or uint8: for storage, computed with as int64; what is stored is the result modulo 2^32 or 2^8.
constexpr bool is_narrow_integer(DType t) { return t == DType::int32 || t == DType::uint8; }
/// The dtype that elements of dtype t are computed in: float32 for halves, int64 for narrow integers, else t.
constexpr DType compute_dtype(DType t) {
  return is_half(t) ? DType::float32 : is_narrow_integer(t) ? DType::int64 : t;
}
constexpr bool is_floating(DType t) { return t == DType::float32 || t == DType::float64 || is_half(t); }
/// The dtype of what integers become where a floating number is needed.
inline constexpr DType kDefaultDType = DType::float32;

/// The smallest dtype that holds what both hold, as PyTorch's: bool < uint8 < int32 < int64 < bfloat16,
/// float16 < float32 < float64, and float32 for the two halves together.
constexpr DType promote_types(DType a, DType b) {
  constexpr auto rank = [](DType t) {
    constexpr int kRanks[kDTypeCount] = {5, 6, 3, 0, 4, 4, 2, 1};
    return kRanks[static_cast<int>(t)];
  };
  if (a == b) return a;
  if (rank(a) == rank(b)) return DType::float32;
  return rank(a) < rank(b) ? b : a;
}

/// dtype_of<float> is float32, and so on; only element types have one.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(
      sizeof(T) == 0,
      "not an element type: use float, double, int64_t, int32_t, uint8_t, bool, BFloat16 or Float16");
  return DType::float32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<Float16> = DType::float16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::uint8;

/// Calls f with a value of the C++ type of t: visit_dtype(t, [&](auto zero) { using T = decltype(zero); ...
/// }).
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
    case DType::float64:
      return f(double{});
    case DType::int64:
      return f(int64_t{});
    case DType::boolean:
      return f(bool{});
    case DType::bfloat16:
      return f(BFloat16{});
    case DType::float16:
      return f(Float16{});
    case DType::int32:
      return f(int32_t{});
    case DType::uint8:
      return f(uint8_t{});
    default:
      return f(float{});
  }
}

}  // namespace troupe
