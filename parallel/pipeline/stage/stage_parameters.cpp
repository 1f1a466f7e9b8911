#include "parallel/pipeline/stage/stage_parameters.h"

#include <fmt/format.h>

#include <charconv>

#include "actors/cell/methods.h"
#include "autograd/distributed/optim/module_actor.h"
#include "autograd/distributed/optim/optimizer.h"
#include "autograd/distributed/optim/optimizer_methods.h"
#include "core/graph/node.h"

namespace troupe::parallel {
namespace {

// Of a call's arguments, the name of a parameter.
const std::string& name_in(const ValueList& args) {
  const auto* name = args.empty() ? nullptr : args[0].get_if<std::string>();
  if (!name) throw_invalid("[pipeline] expected the name of a parameter");
  return *name;
}

void give(Actor& actor, internal::actors::Invocation& call) {
  const std::string& name = name_in(call.call().args);
  call.complete(internal::to_value(parameter_of(actor, name).detach().clone_data()));
}

void tie(Actor& actor, internal::actors::Invocation& call) {
  const ValueList& args = call.call().args;
  const std::string& name = name_in(args);
  const auto* value = args.size() > 1 ? args[1].get_if<Tensor>() : nullptr;
  const Tensor mine = parameter_of(actor, name);
  if (!value || mine.shape() != value->shape() || mine.dtype() != value->dtype())
    throw_invalid(fmt::format("[pipeline] parameter {} is {}, and is tied to one that is {}", name,
                              mine.summary(), value ? value->summary() : "undefined"));
  {
    NoGradGuard off;
    mine.copy_(*value);
  }
  optim::leave_out_of_norms(mine);
  call.complete(Value());
}

}  // namespace

Tensor parameter_of(Actor& actor, const std::string& name) {
  std::vector<std::string> known;
  if (auto* around = dynamic_cast<nn::AnyModuleActor*>(&actor)) {
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
  worker.add_actor_method(kParameter, give);
  worker.add_actor_method(kTie, tie);
  worker.add_actor_method(kKeepVersions, [](Actor&, internal::actors::Invocation& call) {
    optim::set_copy_on_write();
    call.complete(Value());
  });
}

}  // namespace troupe::parallel
