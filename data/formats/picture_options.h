// Options of reading say into which tensors pictures are made.
#pragma once
#include <cstdint>

#include "core/tensor/tensor.h"

namespace troupe::datasets {

struct PictureOptions {
  /// Pictures are resized to so many pixels: each is the mean of those that it covers, or lies between those
  /// beside it. 0: as they are; if one is 0 alone, the other one says the scale.
  int64_t height = 0, width = 0;
  int64_t channels = 3;                    ///< 3: red, green, blue; 1: grey. Transparent parts lie on black.
  DType dtype = float32;                   ///< float32 from 0 to 1, or uint8
  int64_t most_pixels = int64_t{1} << 27;  ///< of a file; larger ones are refused before memory is taken
};

}  // namespace troupe::datasets
