#include "parallel/pipeline/stage/stage_parameters.h"

#include <fmt/format.h>

#include <charconv>

#include "actors/cell/task.h"
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "autograd/distributed/optim/first_values.h"
#include "autograd/distributed/optim/model_part.h"
#include "autograd/distributed/optim/module_actor.h"
#include "core/graph/node.h"

namespace troupe::parallel {
namespace {

Tensor give(Actor& actor, const std::string& name) { return parameter_of(actor, name).detach().clone_data(); }

Task<void> tie(Actor& actor, std::string name, AnyRef of, std::string name_there) {
  const Tensor mine = parameter_of(actor, name);
  optim::ModelPart::here()->leave_out_of_norms("tie of " + name, {mine});
  const optim::FirstValues coming;
  const auto asked = kParameter.ask(of, name_there);
  const Tensor value = co_await asked;
  if (!value.defined() || mine.shape() != value.shape() || mine.dtype() != value.dtype())
    throw_invalid(fmt::format("[pipeline] parameter {} is {}, and is tied to one that is {}", name,
                              mine.summary(), value.summary()));
  const NoGradGuard off;
  mine.copy_(value);
}

}  // namespace

Tensor parameter_of(Actor& actor, const std::string& name) {
  std::vector<std::string> known;
  if (auto* around = dynamic_cast<internal::AnyModuleActor*>(&actor)) {
    for (auto& [own, parameter] : around->any_module().named_parameters()) {
      if (own == name) return parameter;
      known.push_back(own);
    }
  } else {
    const Tensors all = actor.parameters();
    size_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size() && number < all.size()) return all[number];
    for (size_t i = 0; i < all.size(); ++i) known.push_back(std::to_string(i));
  }
  throw_invalid(
      fmt::format("[pipeline] there is no parameter \"{}\"; there are: {}", name, fmt::join(known, ", ")));
}

void install_parameters(internal::actors::Worker& worker) {
  using internal::actors::serve;
  serve<kParameter, give>(worker);
  serve<kTie, tie>(worker);
  serve<kKeepVersions, optim::set_copy_on_write>(worker);
}

}  // namespace troupe::parallel
