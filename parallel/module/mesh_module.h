// A stage of a model that values describe, cut over a mesh: what scripts train in layers over ranks.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/any_module_actor.h"
#include "parallel/module/cut_layer.h"

namespace troupe::parallel {

/// An actor around one stage of a model, of which `stages` has a specification (nn::make()) for each. Layers
/// are cut over the dimensions "tp", "cp" and "ep" that the mesh has: transformer layers and attention, and
/// with CutOptions::experts mixtures in the place of linear layers of the former. Between them, and from
/// stage to stage, x is whole. Its layers are numbered through all stages, so that what the actors have
/// together is one model: "0.weight", "1.self_attn.in_proj_weight". Every program knows it.
///
///   const auto model = parallel::spawn<MeshModule>(here, mesh, stages, CutOptions{});
class MeshModule final : public internal::AnyModuleActor {
 public:
  MeshModule(Mesh mesh, const ValueList& stages, const CutOptions& options);
  ~MeshModule() override;

  Task<Tensor> forward(Tensor x);
  /// Takes its part of the state of the stage's own module, not cut, with that one's names.
  void load_stage(const std::map<std::string, Tensor>& state);
  nn::Module& any_module() override;

  static constexpr auto remote =
      methods<doc<&MeshModule::forward, "The result of the stage, whole on each rank.", "x">,
              doc<&MeshModule::load_stage, "Takes its part of the state of the stage's module.", "state">>;

 private:
  class Net;
  const Group rows_, times_;  // along "ep" and "cp"
  const std::unique_ptr<Net> net_;
};

}  // namespace troupe::parallel
