#include "core/tensor/scalar.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace troupe {

void Scalar::too_large(uint64_t value) {
  throw_invalid("[scalar] " + std::to_string(value) + " is beyond the largest int64, " +
                std::to_string(INT64_MAX) + "; use a double, or a smaller number");
}

bool Scalar::fits(DType dtype) const {
  return visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, bool>) {
      return true;
    } else if constexpr (std::is_integral_v<T>) {
      constexpr auto kLargest = std::numeric_limits<T>::max();
      if (!is_floating()) {
        if (std::is_unsigned_v<T>) return std::abs(static_cast<double>(integer_)) <= kLargest;
        return static_cast<int64_t>(static_cast<T>(integer_)) == integer_;
      }
      if constexpr (sizeof(T) == 8) return floating_ >= -0x1p63 && floating_ < 0x1p63;
      return floating_ >= static_cast<double>(std::numeric_limits<T>::min()) &&
             floating_ <= static_cast<double>(kLargest);
    } else {
      const double value = is_floating() ? floating_ : static_cast<double>(integer_);
      return !std::isfinite(value) ||
             std::isfinite(static_cast<double>(static_cast<float>(convert<T>(value)))) ||
             std::is_same_v<T, double>;
    }
  });
}

std::string Scalar::str() const {
  if (is_boolean()) return integer_ ? "true" : "false";
  if (!is_floating()) return std::to_string(integer_);
  if (std::isnan(floating_)) return "nan";  // whatever its sign
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, floating_).ptr;
  return {text, end};
}

void require_fits(const Scalar& number, DType dtype, const char* op) {
  if (!number.fits(dtype))
    throw_invalid("[" + std::string(op) + "] " + number.str() + " is beyond what " +
                  std::string(name(dtype)) + " holds; use another dtype");
}

}  // namespace troupe
