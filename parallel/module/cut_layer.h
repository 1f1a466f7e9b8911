// A layer that a value describes, cut over the dimensions of a mesh.
#pragma once
#include <memory>
#include <string>

#include "actors/cell/task.h"
#include "collective/mesh.h"
#include "nn/module.h"
#include "parallel/context/sequence.h"

namespace troupe::parallel {

/// How a MeshModule is cut, besides its mesh.
struct CutOptions {
  std::string stages = "pp";  ///< the dimension of the stages
  bool ring = false;          ///< ranks of "cp" attend by a ring, not by heads
  /// Experts in the place of the two linear layers of each transformer layer; 0: none. As ExpertsOptions.
  int64_t experts = 0, top_k = 2, shared = 0;
  double capacity = 0;
  bool normalize = true;
};

}  // namespace troupe::parallel

namespace troupe::internal::parallel {

using troupe::parallel::CutOptions;

/// A layer of a MeshModule.
class CutLayer : public nn::Module {
 public:
  /// Whether x and the result are this rank's rows (along "ep") and positions (along "cp") alone.
  virtual bool of_pieces() const { return false; }
  /// `sequence`: of which x has some positions, if it is of_pieces().
  virtual Task<Tensor> run(Tensor x, troupe::cp::Sequence sequence) = 0;
};

/// Makes what nn::spec_of() gives a specification of: transformer layers and attention are cut along
/// "tp" and "cp", and have experts along "ep"; every other layer is a copy, which computes on each rank what
/// it does on one. Initial values are those of one process.
std::unique_ptr<CutLayer> cut_layer(const Value& spec, const Mesh& mesh, const CutOptions& options);
/// Whether ranks differ in what they compute of such a layer.
bool is_cut(const Value& spec);

/// The group of the member that asks along a dimension; without members, if the mesh has none of that name.
Group group_along(const Mesh& mesh, const std::string& dim);

}  // namespace troupe::internal::parallel
