// The two-byte floating types, for storage: they convert to and from float, and arithmetic on them is
// float's.
#pragma once
#include <bit>
#include <concepts>
#include <cstdint>

namespace troupe {

// The four conversions have no branches, so that loops over them become vector instructions. All round to
// nearest, ties to even; infinities, subnormal numbers and signs of zero are kept; a NaN stays a NaN.

constexpr float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t float_to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;  // rounding could carry a NaN into an infinity
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

constexpr float float16_to_float(uint16_t bits) {
  const uint32_t w = static_cast<uint32_t>(bits) << 16, magnitude = w + w;
  // Normal numbers: the exponent moves by 224, and the product takes 112 of it back; 31 becomes 255.
  const float normal = std::bit_cast<float>((magnitude >> 4) + (0xe0u << 23)) * 0x1p-112f;
  // Subnormal ones: the digits of a number in [0.5, 1) whose last digit is worth 2^-24.
  const float tiny = std::bit_cast<float>((magnitude >> 17) | (126u << 23)) - 0.5f;
  return std::bit_cast<float>((w & 0x80000000u) |
                              std::bit_cast<uint32_t>(magnitude < (1u << 27) ? tiny : normal));
}

constexpr uint16_t float_to_float16(float x) {
  const uint32_t w = std::bit_cast<uint32_t>(x), magnitude = w + w;
  // What is too large becomes infinite in the first product; the sum then rounds at the 11th digit, or at
  // 2^-24.
  const float size = std::bit_cast<float>(w & 0x7fffffffu) * 0x1p+112f * 0x1p-110f;
  const uint32_t exponent = magnitude & 0xff000000u;
  const uint32_t at_least = exponent < 0x71000000u ? 0x71000000u : exponent;
  const uint32_t sum = std::bit_cast<uint32_t>(std::bit_cast<float>((at_least >> 1) + 0x07800000u) + size);
  const uint32_t rounded = ((sum >> 13) & 0x7c00u) + (sum & 0x0fffu);
  return static_cast<uint16_t>(((w >> 16) & 0x8000u) | (magnitude > 0xff000000u ? 0x7e00u : rounded));
}

/// 8 bits of exponent as in float, 8 significant digits. Other numbers are converted through float.
struct BFloat16 {
  uint16_t bits = 0;
  constexpr BFloat16() = default;
  template <std::convertible_to<float> T>
  explicit constexpr BFloat16(T x) : bits(float_to_bfloat16(static_cast<float>(x))) {}
  constexpr operator float() const { return bfloat16_to_float(bits); }
};

/// IEEE 754 binary16: 5 bits of exponent (largest number 65504), 11 significant digits. Other numbers are
/// converted through float.
struct Float16 {
  uint16_t bits = 0;
  constexpr Float16() = default;
  template <std::convertible_to<float> T>
  explicit constexpr Float16(T x) : bits(float_to_float16(static_cast<float>(x))) {}
  constexpr operator float() const { return float16_to_float(bits); }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

}  // namespace troupe
