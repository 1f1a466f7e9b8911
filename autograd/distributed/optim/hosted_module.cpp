#include "autograd/distributed/optim/hosted_module.h"

#include <algorithm>

#include "actors/cell/methods.h"
#include "autograd/distributed/optim/module_actor.h"
#include "nn/make.h"
#include "nn/summary.h"

namespace {

// Outside troupe, since actor types have the names of their classes.
struct Module final : troupe::internal::AnyModuleActor {
  explicit Module(const troupe::Value& spec) : net(troupe::nn::make(spec)) {}
  troupe::Tensor forward(const troupe::Tensor& x) { return (*net)(x); }
  std::string describe() { return troupe::nn::summary(*net); }
  troupe::nn::Module& any_module() override { return *net; }
  std::shared_ptr<troupe::nn::Layer> net;
  static constexpr auto remote = troupe::methods<
      troupe::doc<troupe::constructor<troupe::Value>, "A network made from its specification.", "spec">,
      troupe::doc<&Module::forward, "The network's result.", "x">,
      troupe::doc<&Module::describe, "A table of its layers and parameters.">>;
};

}  // namespace

namespace troupe::nn {

internal::actors::TypeRegistry hosted_module_types(const internal::actors::TypeRegistry& own) {
  const auto called_so = [](const auto& type) { return type->name == "Module"; };
  if (std::any_of(own.begin(), own.end(), called_so)) return {};
  static const bool taken = [&] {  // asked before the one here is known, which then has the name, too
    const auto all = internal::actors::all_types();
    return std::any_of(all.begin(), all.end(), called_so);
  }();
  return taken ? internal::actors::TypeRegistry() : hosting<::Module>();
}

}  // namespace troupe::nn
