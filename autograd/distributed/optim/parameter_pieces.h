// What optimizers update of an actor's parameters where it shares that work with other actors: pieces of
// them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/placement.h"
#include "core/async/future.h"
#include "core/tensor/tensor.h"
#include "core/value/value.h"

namespace troupe::optim {

/// Of copies of one model, each updates its pieces of the parameters, and then all gather the pieces of all.
/// In the mailbox of the actor.
class ParameterPieces {
 public:
  struct Piece {
    /// A parameter of the actor; or what pieces lie in that are its parameters themselves. Undefined: nothing
    /// is divided here.
    Tensor whole;
    /// A leaf of one dimension that shows the elements of that run. Undefined: others have all.
    Tensor piece;
    Placement place = {};  ///< of the piece in the actor's parameter: a run of its elements
    /// In the actor's module, where pieces are its parameters. They are undefined where others have all.
    std::vector<std::string> names = {};
  };
  virtual ~ParameterPieces() = default;
  virtual const std::vector<Piece>& pieces() const = 0;
  /// Pieces of the member before this one, which this one updates as well, so that they are not lost with it:
  /// by parameter, or none.
  virtual const std::vector<Piece>& spares() const = 0;
  /// Contexts have gradients of whole parameters, else of pieces.
  virtual bool whole_gradients() const = 0;
  /// The step is done here. Ready when the parameters have the pieces of all; the n-th gathers belong
  /// together.
  virtual Future<void> gather() = 0;
  /// The step has failed here: those that gather fail, too.
  virtual void give_up(const Error& why) = 0;
  /// The actor's parameters have been given values, not by a step.
  virtual void written() {}
  /// All who have the pieces of all, as a group has them.
  virtual const std::vector<ObjectId>& members() const = 0;
  /// "Shard::state", for errors.
  virtual const char* word() const = 0;
};

/// `invalid` if a parameter of the actor has left its piece behind (to()).
void check_pieces(const std::vector<std::shared_ptr<ParameterPieces>>& all);
/// In an actor's method: the gradient of a piece in the context of the call.
Tensor context_gradient(const ParameterPieces::Piece& piece, const ParameterPieces& of);
}  // namespace troupe::optim
