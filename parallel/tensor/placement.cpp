#include "parallel/tensor/placement.h"

#include <fmt/format.h>

#include <set>

#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/model_part.h"
#include "collective/group_number.h"
#include "core/base/error.h"

namespace troupe::tp {

namespace {

// The placements of all parameters inside a module, by full name.
class Walk final : public nn::Members {
 public:
  explicit Walk(nn::Module& module) { enter(module); }
  Placements placements;
  std::set<std::string> elsewhere;

  void operator()(const std::string&, Tensor&) override {}
  void operator()(const std::string& name, nn::Module& child) override {
    const std::string before = prefix_;
    if (!name.empty()) prefix_ += name + ".";
    enter(child);
    prefix_ = before;
  }
  void buffer(const std::string&, Tensor&) override {}

 private:
  void enter(nn::Module& module) {
    if (const auto* cut = dynamic_cast<const CutModule*>(&module)) {
      for (auto& [name, placement] : cut->placements()) placements.emplace(prefix_ + name, placement);
      for (const std::string& name : cut->elsewhere()) elsewhere.insert(prefix_ + name);
    }
    module.members(*this);
  }
  std::string prefix_;
};

}  // namespace

}  // namespace troupe::tp

namespace troupe::internal::parallel {

Placements placements_of(nn::Module& module) { return tp::Walk(module).placements; }

Placements placements_of(Actor& actor) {
  const nn::HeldModule held(actor);
  if (!held) return {};
  Placements out = placements_of(*held.get());
  for (const auto& some : optim::ModelPart::pieces_here())
    for (const auto& p : some->pieces()) {
      std::vector<std::string> names = p.names;  // also where the actor has no element of it
      for (const auto& [name, t] : held->named_parameters())
        if (p.whole.defined() && p.whole.is_same(t)) names.push_back(name);
      for (const std::string& name : names)
        out.try_emplace(name, tp::Placement{p.place.whole}).first->second.run = p.place.run;
    }
  return out;
}

void be_rank_of(const Group& group) {
  if (auto* const part = optim::ModelPart::here())
    part->be_rank(group.rank(), collective::number_of(group), internal::collective::ids_of(group));
}

}  // namespace troupe::internal::parallel

namespace troupe::tp {

void load_whole_state(nn::Module& module, const std::map<std::string, Tensor>& whole) {
  const Walk walk(module);
  std::map<std::string, Tensor> mine;
  for (const auto& [name, parameter] : whole) {
    if (walk.elsewhere.contains(name)) continue;
    const auto at = walk.placements.find(name);
    if (at != walk.placements.end() && parameter.shape() != at->second.whole)
      throw_invalid(fmt::format("[load_whole_state] {} is {} in the state, and {} in the module", name,
                                parameter.summary(), at->second.whole.str()));
    mine[name] = at == walk.placements.end() ? parameter : at->second.of(parameter);
  }
  module.load_state_dict(mine);
}

void cut_parameter(const Tensor& parameter) {
  if (auto* const part = optim::ModelPart::here()) part->cut(parameter);
}

void put(Tensor& parameter, const Tensor& elements, const Group& group) {
  if (!parameter.defined()) {
    parameter = elements.clone_data().requires_grad_();
    if (!group.size()) return;  // nobody to cut it with
    internal::parallel::be_rank_of(group);
    return cut_parameter(parameter);
  }
  const NoGradGuard off;
  parameter.copy_(elements.detach());
}

}  // namespace troupe::tp
