#include "autograd/dist/module.h"

#include "actors/cell.h"
#include "actors/codec.h"
#include "actors/worker.h"

namespace troupe::nn {
namespace {

using State = std::map<std::string, Tensor>;

constexpr const char* kParameters = "nn.parameters";
constexpr const char* kStateDict = "nn.state_dict";
constexpr const char* kLoad = "nn.load_state_dict";  // state
constexpr const char* kTrain = "nn.train";           // on?
constexpr const char* kTraining = "nn.training";

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

}  // namespace troupe::nn
