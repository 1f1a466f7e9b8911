// The pixels of PNG and JPEG data, as the libraries give them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/formats/picture_options.h"

namespace troupe::datasets::detail {

/// Row by row, the channels of a pixel side by side.
struct PicturePixels {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> values;
  int64_t to_height = 0, to_width = 0;  ///< the size that the options make of the picture
};

/// JPEG data may come smaller than they are, but never smaller than the size that they are to have. `what`
/// begins error texts.
PicturePixels picture_pixels(std::span<const std::byte> bytes, const PictureOptions& options,
                             const std::string& what);

}  // namespace troupe::datasets::detail
