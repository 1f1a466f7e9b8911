// A tensor in a safetensors file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor/tensor.h"

namespace troupe::datasets {

/// What the header says about one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;  ///< as in the file: "F32"; lives as long as the program
  Shape shape;
  uint64_t begin = 0, end = 0;  ///< its bytes in the file
};

namespace detail {
/// A copy of some elements of a file, with the types of Safetensors::tensor(). `what` begins error texts.
Tensor elements_of(std::span<const std::byte> bytes, std::string_view dtype, const Shape& shape,
                   const std::string& what);
}  // namespace detail

}  // namespace troupe::datasets
