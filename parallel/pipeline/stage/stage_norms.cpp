#include "parallel/pipeline/stage/stage_norms.h"

#include "autograd/distributed/optim/module_actor.h"

namespace troupe::parallel {
namespace {

void find(nn::Module& module, std::vector<nn::RunningNorm*>& found) {
  if (auto* norm = dynamic_cast<nn::RunningNorm*>(&module)) found.push_back(norm);
  for (auto& [name, child] : module.children()) find(*child, found);
}

}  // namespace

void StageNorms::begin(Actor& actor) {
  if (std::exchange(begun_, true)) return;
  if (auto* around = dynamic_cast<internal::AnyModuleActor*>(&actor)) find(around->any_module(), layers_);
  set(nn::Statistics::gather);
}

void StageNorms::end(bool keep) {
  for (nn::RunningNorm* layer : layers_) layer->settle(keep);
  layers_.clear();
  begun_ = false;
}

void StageNorms::set(nn::Statistics what) const {
  for (nn::RunningNorm* layer : layers_) layer->set_statistics(what);
}

StageNorms::Again::Again(const StageNorms& norms) : norms_(norms) { norms_.set(nn::Statistics::leave); }
StageNorms::Again::~Again() { norms_.set(nn::Statistics::gather); }

}  // namespace troupe::parallel
