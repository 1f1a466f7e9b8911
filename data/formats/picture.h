// Pictures of PNG and JPEG files as tensors.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "core/tensor/tensor.h"
#include "data/formats/picture_options.h"

namespace troupe::datasets {

/// A picture as [channels, height, width]; its bytes, and not a name, say what it is. `invalid`, the text
/// starting with "[picture] name: ", for other bytes, and for a picture that is broken, cut short or too
/// large. `unimplemented`, naming the packages, in a build without libpng and libjpeg.
Tensor picture_of(std::span<const std::byte> bytes, const std::string& name,
                  const PictureOptions& options = {});
/// Reads a file as picture_of() does.
Tensor read_picture(const std::string& path, const PictureOptions& options = {});

}  // namespace troupe::datasets
