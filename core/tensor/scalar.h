// A number beside a tensor: what was written, exactly, and of which kind it is.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/tensor/convert.h"

namespace troupe {

/// A bool, an int64 or a double, made implicitly from every C++ number: `i + 2` stays int64, and `i + 0.5` is
/// float32. An unsigned number above the largest int64 is `invalid`.
class Scalar {
 public:
  Scalar() = default;  ///< the integer 0
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Scalar(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      dtype_ = float64;
      floating_ = static_cast<double>(value);
    } else {
      dtype_ = std::is_same_v<T, bool> ? boolean : int64;
      if constexpr (std::is_unsigned_v<T> && sizeof(T) >= 8)
        if (value > static_cast<T>(INT64_MAX)) too_large(value);
      integer_ = static_cast<int64_t>(value);
    }
  }

  /// boolean, int64 or float64: what it holds.
  constexpr DType dtype() const { return dtype_; }
  constexpr bool is_boolean() const { return dtype_ == boolean; }
  constexpr bool is_floating() const { return dtype_ == float64; }

  /// As an element of type T, as convert() makes one: integers wrap around, fractions are cut off.
  template <class T>
  constexpr T to() const {
    return is_floating() ? convert<T>(floating_) : convert<T>(integer_);
  }
  /// Whether an element of that dtype can hold it but for rounding: not an integer beyond its range, a finite
  /// number that would become infinite, or a NaN for an integer. A negative integer wraps in uint8, down to
  /// -255, as in PyTorch.
  bool fits(DType dtype) const;

  /// -this; of an integer modulo 2^64, of a bool the int64.
  Scalar operator-() const {
    return is_floating() ? Scalar(-floating_) : Scalar(convert<int64_t>(-static_cast<uint64_t>(integer_)));
  }
  /// Of one kind and one value; a NaN differs from itself.
  bool operator==(const Scalar& o) const {
    return dtype_ == o.dtype_ && (is_floating() ? floating_ == o.floating_ : integer_ == o.integer_);
  }
  /// "3", "0.5", "true".
  std::string str() const;

 private:
  [[noreturn]] static void too_large(uint64_t value);
  DType dtype_ = int64;
  union {
    int64_t integer_ = 0;
    double floating_;
  };
};

/// `invalid` unless elements of that dtype can hold the number (Scalar::fits), the text starting with [op].
void require_fits(const Scalar& number, DType dtype, const char* op);

}  // namespace troupe
