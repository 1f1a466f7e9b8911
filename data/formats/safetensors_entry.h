// A tensor in a safetensors file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/tensor/shape.h"

namespace troupe::datasets {

/// What the header says about one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;  ///< as in the file: "F32"; lives as long as the program
  Shape shape;
  uint64_t begin = 0, end = 0;  ///< its bytes in the file
};

}  // namespace troupe::datasets
