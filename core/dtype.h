// Element types of tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Element type. The numbers travel on the wire and in files: never reuse one.
enum class DType : uint8_t { float32 = 0, float64 = 1, int64 = 2, boolean = 3 };
inline constexpr int kDTypeCount = 4;

inline constexpr DType float32 = DType::float32;
inline constexpr DType float64 = DType::float64;
inline constexpr DType int64 = DType::int64;
inline constexpr DType boolean = DType::boolean;

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
      return 1;
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
  }
  return "?";
}
constexpr bool is_floating(DType t) { return t == DType::float32 || t == DType::float64; }

/// dtype_of<float> is float32, and so on; only element types have one.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not an element type: use float, double, int64_t or bool");
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
    default:
      return f(float{});
  }
}

}  // namespace troupe
