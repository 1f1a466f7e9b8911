// What a module computes, as an ONNX file.
#pragma once
#include <string>

#include "nn/module.h"

namespace troupe {

struct OnnxOptions {
  std::string input = "input", output = "output";  ///< their names in the graph
};

/// Writes what a layer computes of inputs like `sample`, with its parameters under their own names, for
/// onnxruntime and others (operator set 20). The layer runs once, as for use, without gradients; it is left
/// as it was. Sizes are those of the sample. `invalid`, and nothing is written, for operators that have no
/// form there (it names them), and for writes in place, whose values depend on the input. An input that
/// decides in C++ what is computed decides for all that the file is used with.
void export_onnx(nn::Layer& layer, const Tensor& sample, const std::string& file,
                 const OnnxOptions& options = {});

}  // namespace troupe
