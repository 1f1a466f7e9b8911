#include "autograd/distributed/optim/parameter_pieces.h"

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/context.h"
#include "core/base/error.h"

namespace troupe::optim {

Tensor context_gradient(const ParameterPieces::Piece& piece, const ParameterPieces& of) {
  if (!of.whole_gradients()) return autograd::context_gradient(piece.piece);
  const Tensor whole = autograd::context_gradient(piece.whole);
  if (!whole.defined()) return {};
  if (whole.shape() != piece.whole.shape())
    throw_invalid("[optim] a gradient is " + whole.summary() + "; its parameter is " + piece.whole.summary());
  const Tensor all = whole.detach().contiguous_data();
  return all.alias(piece.piece.shape(), piece.piece.strides(), all.storage_offset() + piece.place.run->from);
}

void check_pieces(const std::vector<std::shared_ptr<ParameterPieces>>& all) {
  for (const auto& pieces : all)
    for (const auto& p : pieces->pieces())
      if (p.piece.defined() && p.whole.storage() != p.piece.storage())
        throw_invalid("[optim] a parameter (" + p.piece.summary() + " of " + p.place.whole.str() +
                      ") of actor " + internal::actors::current_cell()->label() +
                      " was given other elements after it was cut (" + pieces->word() +
                      "): move models with to() before that");
}

}  // namespace troupe::optim
