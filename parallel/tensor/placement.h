// How the parameters of a rank lie in those of the whole module.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "autograd/distributed/optim/placement.h"
#include "collective/group.h"
#include "core/tensor/tensor.h"
#include "nn/module.h"

namespace troupe::tp {

using optim::Placement;
using optim::Placements;

/// A module with parameters that are cut, or that other ranks have.
class CutModule {
 public:
  virtual ~CutModule() = default;
  /// Of its own parameters, by name. All others are whole.
  virtual Placements placements() const = 0;
  /// Names of its parameters that other ranks have.
  virtual std::vector<std::string> elsewhere() const { return {}; }
};

}  // namespace troupe::tp

namespace troupe::internal::parallel {

using optim::Placements;

/// Of all parameters inside a module that are cut, by full name.
Placements placements_of(nn::Module& module);
/// In an actor's mailbox: of its parameters that are cut over ranks, or that replicas have divided, also of
/// those that it has no element of.
Placements placements_of(Actor& actor);
/// The actor is a rank of the group: those of its parameters that nobody has cut are copies.
void be_rank_of(const Group& group);

}  // namespace troupe::internal::parallel

namespace troupe::tp {

/// Copies what this rank has of the state of one process, such as nn::Module::state_dict() gives of the
/// module that is not cut, into a module, whose parameters have the same names. `invalid`, with nothing
/// changed, as nn::Module::load_state_dict().
void load_whole_state(nn::Module& module, const std::map<std::string, Tensor>& whole);

/// Says, in an actor, that a parameter is cut, or is this rank's alone, as those of the layers here are. The
/// norm of all gradients counts it wherever it is. Parameters that nobody has said this of are copies, equal
/// on all ranks, and count on rank 0 alone.
void cut_parameter(const Tensor& parameter);

/// Makes an undefined parameter a leaf with those elements, which are this rank's of that group, or writes
/// them to the one that there is.
void put(Tensor& parameter, const Tensor& elements, const Group& group);

}  // namespace troupe::tp
