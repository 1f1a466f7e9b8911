// How the parameters of a rank lie in those of the whole module.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collective/group.h"
#include "core/tensor/tensor.h"
#include "nn/module.h"

namespace troupe::tp {

/// What a rank has of a parameter: some ranges along a dimension, one behind the other.
struct Placement {
  struct Range {
    int64_t from = 0, size = 0;
  };
  Shape whole;
  int64_t dim = 0;
  std::vector<Range> ranges;

  /// A copy of what the rank has of that whole one. `invalid` if its shape is another.
  Tensor of(const Tensor& parameter) const;
  /// Of one range: how rank `rank` of a group has it, whose sizes are those.
  static Placement cut(const Shape& whole, int64_t dim, const std::vector<int64_t>& sizes, size_t rank);
};

/// A module with parameters that are cut, or that other ranks have.
class CutModule {
 public:
  virtual ~CutModule() = default;
  /// Of its own parameters, by name. All others are whole.
  virtual std::map<std::string, Placement> placements() const = 0;
  /// Names of its parameters that other ranks have.
  virtual std::vector<std::string> elsewhere() const { return {}; }
};

/// Of all parameters inside a module that are cut, by full name.
std::map<std::string, Placement> placements_of(nn::Module& module);

/// Copies what this rank has of the state of one process, such as nn::Module::state_dict() gives of the
/// module that is not cut, into a module, whose parameters have the same names. `invalid`, with nothing
/// changed, as nn::Module::load_state_dict().
void load_whole_state(nn::Module& module, const std::map<std::string, Tensor>& whole);

/// Says, in an actor, that a parameter is cut, or is this rank's alone, as those of the layers here are. The
/// norm of all gradients counts it wherever it is. Parameters that nobody has said this of are copies, equal
/// on all ranks, and count on rank 0 alone.
void cut_parameter(const Tensor& parameter);
/// Leaves the copies of this actor out of norms, unless its rank in the group is 0; a gradient of a copy that
/// is another one there is refused. Layers and conversions do so when they are called.
void count_copies_once(const Group& group, size_t rank);
/// The same again, since the actor has become one of replicas, or is none any more (no group): pieces of
/// parameters have come or gone. What replicas convert among them says nothing of copies, which they count
/// once by themselves.
void count_copies_anew(const Group& replicas = {});
/// The actor has a piece in the place of a parameter, which is cut if that was.
void cut_piece(const Tensor& parameter, const Tensor& piece);

/// Makes an undefined parameter a leaf with those elements, or writes them to the one that there is.
void put(Tensor& parameter, const Tensor& elements);

}  // namespace troupe::tp
