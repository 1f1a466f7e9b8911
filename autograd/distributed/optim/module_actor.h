// Modules of actors from afar: parameters, states and modes.
#pragma once
#include <map>
#include <string>

#include "autograd/distributed/optim/any_module_actor.h"
#include "nn/module.h"
#include "rref/any_ref.h"

namespace troupe::internal {

/// In a method of an actor: what remote_parameters() names, as it is; empty if there is nothing of the kind.
troupe::nn::NamedTensors named_parameters_of(Actor& actor);

/// Registers the methods that follow. Part of every worker's set-up.
void install_modules(actors::Worker& worker);

/// Registers the methods of the functions below. Part of every worker's set-up.
void install_modules(actors::Worker& worker);

/// Registers the methods of the functions below. Part of every worker's set-up.
void install_modules(actors::Worker& worker);

}  // namespace troupe::internal

namespace troupe::nn {

/// An actor around a module, its member `net`, whose parameters keep their names. M is an nn::Module or
/// Layer.
///
///   struct Hidden : nn::ModuleActor<nn::Linear> {
///     Hidden(int64_t in, int64_t out) : ModuleActor(in, out) {}
///     Tensor forward(Tensor x) { return relu(net(x)); }
///     static constexpr auto remote = methods<&Hidden::forward>;
///   };
template <class M>
class ModuleActor : public internal::AnyModuleActor {
 public:
  template <class... A>
  explicit ModuleActor(A&&... args) : net(std::forward<A>(args)...) {}
  Module& any_module() override { return net; }
  M net;
};

/// The functions below send a message to the actor and do not wait. They work on the module of a ModuleActor;
/// of another actor on what its constructor made, with the names "0.weight", "1.bias", ... in the order of
/// construction, and "tensor0", ... for its own tensors (Actor::parameters). `invalid` if there is nothing of
/// the kind, unless said otherwise. Those that set something take effect also if their future is dropped, or
/// its deadline passes.
///
/// The values of its parameters by name, as they are when the message is handled; copies, on the CPU.
Future<std::map<std::string, Tensor>> remote_parameters(const AnyRef& actor);
/// Module::state_dict(): parameters and buffers; copies, on the CPU.
Future<std::map<std::string, Tensor>> remote_state_dict(const AnyRef& actor);
/// Module::load_state_dict(), with its errors.
Future<void> load_remote_state_dict(const AnyRef& actor, std::map<std::string, Tensor> state);
/// Module::to(device), of a device of the actor's worker; its optimizer's state follows.
Future<void> remote_to(const AnyRef& actor, const std::string& device);
/// Module::train() and eval(): for the calls that are made after it.
Future<void> set_remote_training(const AnyRef& actor, bool on = true);
Future<bool> remote_training(const AnyRef& actor);
/// Where the random numbers of any actor are: of its stream (core/base/seed_stream.h), as "actor", and of the
/// generators of its modules, as "net.NAME". To be saved beside the states of modules and
/// optimizers.
Future<std::map<std::string, Tensor>> remote_rng_state(const AnyRef& actor);
/// `invalid`, with nothing changed, if the state is not of such an actor.
Future<void> load_remote_rng_state(const AnyRef& actor, std::map<std::string, Tensor> state);

}  // namespace troupe::nn
