#include "autograd/distributed/optim/parameter_pieces.h"

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/context.h"
#include "core/base/error.h"

namespace troupe::optim {
namespace {

// Of an actor.
struct PiecesOfActor {
  std::vector<std::weak_ptr<ParameterPieces>> all;
};

}  // namespace

void refuse_copy_on_write(const char* word) {
  const std::string actor = internal::actors::current_cell()->label();
  throw_invalid("[optim] old versions of parameters of actor " + actor +
                " are kept (set_copy_on_write(), DelayedUpdates), and pieces of parameters have none (" +
                word + "): write Shard::none, or leave out what keeps them");
}

Tensor context_gradient(const ParameterPieces::Piece& piece, const ParameterPieces& of) {
  if (!of.whole_gradients()) return autograd::context_gradient(piece.piece);
  const Tensor whole = autograd::context_gradient(piece.whole);
  if (!whole.defined()) return {};
  if (whole.shape() != piece.whole.shape())
    throw_invalid("[optim] a gradient is " + whole.summary() + "; its parameter is " + piece.whole.summary());
  const Tensor all = whole.detach().contiguous_data();
  return all.alias(piece.piece.shape(), piece.piece.strides(), all.storage_offset() + piece.from);
}

void update_pieces(const std::shared_ptr<ParameterPieces>& pieces) {
  const auto cell = internal::actors::current_cell();
  if (!cell) return;  // no optimizer comes to what is no actor
  if (cell->kept<CopyOnWrite>()) refuse_copy_on_write(pieces->word());
  auto& all = cell->keep<PiecesOfActor>().all;
  std::erase_if(all, [](const auto& p) { return p.expired(); });
  all.push_back(pieces);
}

std::vector<std::shared_ptr<ParameterPieces>> pieces_here() {
  const auto cell = internal::actors::current_cell();
  std::vector<std::shared_ptr<ParameterPieces>> alive;
  for (const auto& weak : cell->keep<PiecesOfActor>().all)
    if (auto pieces = weak.lock()) alive.push_back(std::move(pieces));
  return alive;
}

void parameters_written() {
  for (const auto& pieces : pieces_here()) pieces->written();
}

void check_pieces(const std::vector<std::shared_ptr<ParameterPieces>>& all) {
  for (const auto& pieces : all)
    for (const auto& p : pieces->pieces())
      if (p.piece.defined() && p.whole.storage() != p.piece.storage())
        throw_invalid("[optim] a parameter (" + p.piece.summary() + " of " + p.shape.str() + ") of actor " +
                      internal::actors::current_cell()->label() +
                      " was given other elements after it was cut (" + pieces->word() +
                      "): move models with to() before that");
}

}  // namespace troupe::optim
