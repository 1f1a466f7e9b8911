// What each of several actors has of one model: how their parts are put together, and cut in another way.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "autograd/distributed/optim/owned_state.h"
#include "autograd/distributed/optim/placement.h"
#include "data/checkpoint/checkpoint_files.h"

namespace troupe::internal {

using optim::Placements;

/// Puts them into a state, and takes them out of it again.
void add_pieces(StateDict& rest, const Placements& pieces);
Placements take_pieces(StateDict& rest);

/// One of the actors that had a model together.
struct PartOwner {
  std::string path;
  OwnedState state;
  Placements pieces;
};
/// With all tensors that the checkpoint has of it. `parts_of_before`: with the names that parameters of parts
/// have since format 2.
PartOwner part_owner(const datasets::Checkpoint& checkpoint, const std::string& path,
                     bool parts_of_before = false);
/// Whether the checkpoint is of format 1, and the actor has parts, so that names differ. In its mailbox.
bool has_parts_of_before(const datasets::Checkpoint& checkpoint, Actor& actor);
/// A tensor of the whole model, or of its optimizer, from the parts of all; `name`: of it, in `model` or
/// `rest`; `parameter`: whose pieces it has. `invalid`, naming who, if elements are missing, or copies
/// differ.
Tensor whole_of(const std::vector<PartOwner>& owners, const std::string& name, bool model,
                const std::string& parameter);
/// The state of an actor that has these pieces of the model now, and for what is no part of it `here`.
/// `path`: its own. `invalid`, naming what is missing, or is another for each owner.
OwnedState cut_again(const std::vector<PartOwner>& owners, const std::string& path, const OwnedState& here,
                     const Placements& pieces);

/// "Model#" of "Model#3": of actors that may have a model together.
std::string family_of(const std::string& path);
/// Whether the type of the actor is this library's.
bool is_ours(const std::string& path);

/// What actors that have a model together have taken of a checkpoint.
struct TakenModels {
  std::set<std::string> families;
  std::set<std::string> names;  ///< a family, and behind it the name of a parameter
  /// `invalid`, naming it, if a program that has the actors of `layout` has left something. False if it has
  /// not all of the actors that had a model together.
  bool check_all_of(const datasets::Checkpoint& checkpoint,
                    const std::map<std::string, std::string>& layout) const;
};

}  // namespace troupe::internal
