// Optimizers that look at whole parameters: what such an update gives an element depends on the others.
#pragma once
#include <string_view>

#include "core/tensor/tensor.h"

namespace troupe::optim {

/// Whether the optimizer of that name is one of them.
bool needs_whole_parameters(std::string_view optimizer);

}  // namespace troupe::optim

namespace troupe::internal {

/// Says of a tensor, where the thread is, how it was cut ("Shard::all"), or null: it is whole.
using PieceWord = const char*(const Tensor&);
/// Whoever cuts parameters says so here, once.
void set_piece_word(PieceWord* word);
/// `invalid` if one of the parameters is a piece.
void require_whole(const char* optimizer, const Tensors& params);

}  // namespace troupe::internal
