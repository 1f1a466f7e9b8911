// A table of a module's layers.
#pragma once
#include <string>

#include "nn/module.h"

namespace troupe::nn {

/// One line per module inside: name, what it is, parameters and bytes of its own (each shared tensor once, at
/// its first place; bytes count buffers too); then the totals. Ends with a newline.
std::string summary(Module& module);
/// With the shape of each layer's result (its last call) in a pass with `example`: in eval mode, without
/// gradients; afterwards all modules are in the mode that they were in. "-": was not called.
std::string summary(Layer& layer, const Tensor& example);
/// The same with float32 zeros of a shape.
std::string summary(Layer& layer, const Shape& input);

}  // namespace troupe::nn
