#include "autograd/distributed/optim/module_actor.h"

#include "actors/cell/cell.h"
#include "actors/codec.h"
#include "actors/worker/worker.h"
#include "ops/random.h"

namespace troupe::nn {
namespace {

using State = std::map<std::string, Tensor>;

constexpr const char* kParameters = "nn.parameters";
constexpr const char* kStateDict = "nn.state_dict";
constexpr const char* kLoad = "nn.load_state_dict";  // state
constexpr const char* kTrain = "nn.train";           // on?
constexpr const char* kTraining = "nn.training";
constexpr const char* kRngState = "nn.rng_state";  // a state to be loaded, or nothing; the state

Module& module_of(Actor& actor, const actors::Invocation& call) {
  if (auto* held = dynamic_cast<AnyModuleActor*>(&actor)) return held->any_module();
  throw_invalid("[nn] actor " + call.cell()->label() + " is no nn::ModuleActor: it has no module to look at");
}

Value copies(const State& state) {
  State out;
  for (const auto& [name, tensor] : state) out[name] = tensor.detach().clone_data();
  return actors::to_value(std::move(out));
}

void parameters(Actor& actor, actors::Invocation& call) {
  State state;
  for (auto& [name, tensor] : module_of(actor, call).named_parameters()) state[name] = tensor;
  call.complete(copies(state));
}

void state_dict(Actor& actor, actors::Invocation& call) {
  call.complete(copies(module_of(actor, call).state_dict()));
}

void load(Actor& actor, actors::Invocation& call) {
  auto [state] = actors::ListCodec<State>::from(std::move(call.call().args), kLoad);
  module_of(actor, call).load_state_dict(state);
  call.complete(Value());
}

void train(Actor& actor, actors::Invocation& call) {
  auto [on] = actors::ListCodec<bool>::from(std::move(call.call().args), kTrain);
  module_of(actor, call).train(on);
  call.complete(Value());
}

void training(Actor& actor, actors::Invocation& call) {
  call.complete(Value(module_of(actor, call).training()));
}

constexpr const char* kOfActor = "actor";
constexpr const char* kOfModule = "net.";

State rng_state_of(Actor& actor) {
  State state{{kOfActor, ops::get_rng_state()}};
  if (auto* held = dynamic_cast<AnyModuleActor*>(&actor))
    for (auto& [name, tensor] : held->any_module().rng_state()) state[kOfModule + name] = tensor;
  return state;
}

void load_rng_state(Actor& actor, State state, const actors::ActorCell& cell) {
  const auto of_actor = state.extract(kOfActor);
  if (of_actor.empty()) throw_invalid(std::string("[load_rng_state] missing ") + kOfActor);
  State of_module;
  for (auto& [name, tensor] : state) {
    if (!name.starts_with(kOfModule)) throw_invalid("[load_rng_state] unexpected " + name);
    of_module[name.substr(std::string(kOfModule).size())] = tensor;
  }
  auto* held = dynamic_cast<AnyModuleActor*>(&actor);
  if (!held && !of_module.empty())
    throw_invalid("[load_rng_state] actor " + cell.label() + " is no nn::ModuleActor, and got " + kOfModule +
                  of_module.begin()->first);
  const Tensor before = ops::get_rng_state();
  ops::set_rng_state(of_actor.mapped());
  try {
    if (held) held->any_module().load_rng_state(of_module);
  } catch (...) {
    ops::set_rng_state(before);
    throw;
  }
}

void rng_state(Actor& actor, actors::Invocation& call) {
  auto [state] = actors::ListCodec<std::optional<State>>::from(std::move(call.call().args), kRngState);
  if (state) load_rng_state(actor, std::move(*state), *call.cell());
  call.complete(actors::to_value(rng_state_of(actor)));
}

Future<State> asked_for(const AnyRef& actor, const char* method) {
  return actor.call(method, {}).then([](const Value& v) { return actors::from_value<State>(v); });
}

}  // namespace

void install_modules(actors::Worker& worker) {
  worker.add_actor_method(kParameters, parameters);
  worker.add_actor_method(kStateDict, state_dict);
  worker.add_actor_method(kLoad, load);
  worker.add_actor_method(kTrain, train);
  worker.add_actor_method(kTraining, training);
  worker.add_actor_method(kRngState, rng_state);
}

Future<State> remote_parameters(const AnyRef& actor) { return asked_for(actor, kParameters); }
Future<State> remote_state_dict(const AnyRef& actor) { return asked_for(actor, kStateDict); }

Future<void> load_remote_state_dict(const AnyRef& actor, State state) {
  return actor.call(kLoad, {actors::to_value(std::move(state))}).then([](const Value&) {});
}

Future<void> set_remote_training(const AnyRef& actor, bool on) {
  return actor.call(kTrain, {Value(on)}).then([](const Value&) {});
}

Future<bool> remote_training(const AnyRef& actor) {
  return actor.call(kTraining, {}).then([](const Value& v) { return actors::from_value<bool>(v); });
}

Future<State> remote_rng_state(const AnyRef& actor) {
  return actor.call(kRngState, {Value()}).then([](const Value& v) { return actors::from_value<State>(v); });
}

Future<void> load_remote_rng_state(const AnyRef& actor, State state) {
  return actor.call(kRngState, {actors::to_value(std::move(state))}).then([](const Value&) {});
}

}  // namespace troupe::nn
