// Tensors by name, and where those that are pieces lie in the whole.
#pragma once
#include <map>
#include <string>

#include "core/tensor/tensor.h"

namespace troupe::datasets {

using NamedTensors = std::map<std::string, Tensor>;
/// Of tensors that several files hold in pieces: where the piece of this file begins in the whole, for each
/// dimension. PyTorch's distributed checkpoints call it saved_offsets.
using PieceOffsets = std::map<std::string, Shape>;

}  // namespace troupe::datasets
