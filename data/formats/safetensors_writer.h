// The writer of safetensors files, for who wants to hear what is written.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/tensor/tensor.h"
#include "data/formats/file.h"

namespace troupe::datasets::detail {

/// Hears of all bytes, in order, a part at a time: those of a tensor with its name, at least once for each;
/// those of the header with an empty one.
using WrittenBytes = std::function<void(std::string_view tensor, const void* bytes, size_t count)>;

/// A tensor that is there when it is written: `elements` gives it then, with that dtype and shape.
struct LaterTensor {
  DType dtype = float32;
  Shape shape;
  std::function<Tensor()> elements;
};

/// write_safetensors(), heard. What `elements` throws leaves the file as it was.
void write_safetensors(const std::string& path, const std::map<std::string, LaterTensor>& tensors,
                       const std::map<std::string, std::string>& metadata, const WrittenBytes& written,
                       AtomicFile::Through through = AtomicFile::Through::cache);
void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata, const WrittenBytes& written,
                       AtomicFile::Through through = AtomicFile::Through::cache);

}  // namespace troupe::datasets::detail
