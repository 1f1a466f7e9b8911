#include "autograd/distributed/optim/module_actor.h"

#include "actors/cell/cell.h"
#include "actors/worker/worker.h"
#include "core/codec/codec.h"
#include "nn/made_parts.h"
#include "ops/random.h"

namespace troupe::nn {
namespace {

using State = std::map<std::string, Tensor>;

constexpr const char* kParameters = "nn.parameters";
constexpr const char* kStateDict = "nn.state_dict";
constexpr const char* kLoad = "nn.load_state_dict";  // state
constexpr const char* kTrain = "nn.train";           // on?
constexpr const char* kTo = "nn.to";                 // device
constexpr const char* kTraining = "nn.training";
constexpr const char* kRngState = "nn.rng_state";  // a state to be loaded, or nothing; the state

// The module of an actor: its own, or what its constructor made.
class Held {
 public:
  explicit Held(Actor& actor) {
    if (auto* held = dynamic_cast<AnyModuleActor*>(&actor))
      module_ = &held->any_module();
    else if (actor.made_parts())
      made_.emplace(*actor.made_parts());
    if (made_ && made_->empty()) made_.reset();
    if (made_) module_ = &*made_;
  }
  Held(Actor& actor, const internal::actors::Invocation& call) : Held(actor) {
    if (!module_)
      throw_invalid("[nn] actor " + call.cell()->label() +
                    " has no module, nor a tensor that needs gradients");
  }
  explicit operator bool() const { return module_; }
  Module* operator->() const { return module_; }
  Module& operator*() const { return *module_; }

 private:
  std::optional<MadeModule> made_;
  Module* module_ = nullptr;
};

Value copies(const State& state) {
  State out;
  for (const auto& [name, tensor] : state) {
    const Tensor t = tensor.detach();
    out[name] = t.device().is_cpu() ? t.clone_data() : t.data_on(cpu);
  }
  return internal::to_value(std::move(out));
}

void parameters(Actor& actor, internal::actors::Invocation& call) {
  State state;
  for (auto& [name, tensor] : Held(actor, call)->named_parameters()) state[name] = tensor;
  call.complete(copies(state));
}

void state_dict(Actor& actor, internal::actors::Invocation& call) {
  call.complete(copies(Held(actor, call)->state_dict()));
}

void load(Actor& actor, internal::actors::Invocation& call) {
  auto [state] = internal::ListCodec<State>::from(std::move(call.call().args), kLoad);
  Held(actor, call)->load_state_dict(state);
  call.complete(Value());
}

void train(Actor& actor, internal::actors::Invocation& call) {
  auto [on] = internal::ListCodec<bool>::from(std::move(call.call().args), kTrain);
  Held(actor, call)->train(on);
  call.complete(Value());
}

void to_device(Actor& actor, internal::actors::Invocation& call) {
  auto [device] = internal::ListCodec<std::string>::from(std::move(call.call().args), kTo);
  Held(actor, call)->to(Device(device));
  call.complete(Value());
}

void training(Actor& actor, internal::actors::Invocation& call) {
  call.complete(Value(Held(actor, call)->training()));
}

constexpr const char* kOfActor = "actor";
constexpr const char* kOfModule = "net.";

State rng_state_of(Actor& actor) {
  State state{{kOfActor, ops::get_rng_state()}};
  if (const Held held{actor})
    for (auto& [name, tensor] : held->rng_state()) state[kOfModule + name] = tensor;
  return state;
}

void load_rng_state(Actor& actor, State state, const internal::actors::ActorCell& cell) {
  const auto of_actor = state.extract(kOfActor);
  if (of_actor.empty()) throw_invalid(std::string("[load_rng_state] missing ") + kOfActor);
  State of_module;
  for (auto& [name, tensor] : state) {
    if (!name.starts_with(kOfModule)) throw_invalid("[load_rng_state] unexpected " + name);
    of_module[name.substr(std::string(kOfModule).size())] = tensor;
  }
  const Held held(actor);
  if (!held && !of_module.empty())
    throw_invalid("[load_rng_state] actor " + cell.label() + " has no module, and got " + kOfModule +
                  of_module.begin()->first);
  const Tensor before = ops::get_rng_state();
  ops::set_rng_state(of_actor.mapped());
  try {
    if (held) held->load_rng_state(of_module);
  } catch (...) {
    ops::set_rng_state(before);
    throw;
  }
}

void rng_state(Actor& actor, internal::actors::Invocation& call) {
  auto [state] = internal::ListCodec<std::optional<State>>::from(std::move(call.call().args), kRngState);
  if (state) load_rng_state(actor, std::move(*state), *call.cell());
  call.complete(internal::to_value(rng_state_of(actor)));
}

Future<State> asked_for(const AnyRef& actor, const char* method) {
  return actor.call(method, {}).then([](const Value& v) { return internal::from_value<State>(v); });
}

}  // namespace

void install_modules(internal::actors::Worker& worker) {
  internal::actors::set_parameter_finder([](MadeParts& parts) { return MadeModule(parts).parameters(); });
  worker.add_actor_method(kParameters, parameters);
  worker.add_actor_method(kStateDict, state_dict);
  worker.add_actor_method(kLoad, load);
  worker.add_actor_method(kTrain, train);
  worker.add_actor_method(kTo, to_device);
  worker.add_actor_method(kTraining, training);
  worker.add_actor_method(kRngState, rng_state);
}

// Setters take effect although nobody keeps their future.
static Future<void> set(const AnyRef& actor, const char* method, Value what) {
  return actor.call(method, {std::move(what)}, {.detached = true}).then([](const Value&) {});
}

Future<State> remote_parameters(const AnyRef& actor) { return asked_for(actor, kParameters); }
Future<State> remote_state_dict(const AnyRef& actor) { return asked_for(actor, kStateDict); }

Future<void> load_remote_state_dict(const AnyRef& actor, State state) {
  return set(actor, kLoad, internal::to_value(std::move(state)));
}

Future<void> set_remote_training(const AnyRef& actor, bool on) { return set(actor, kTrain, Value(on)); }

Future<void> remote_to(const AnyRef& actor, const std::string& device) {
  return set(actor, kTo, Value(device));
}

Future<bool> remote_training(const AnyRef& actor) {
  return actor.call(kTraining, {}).then([](const Value& v) { return internal::from_value<bool>(v); });
}

Future<State> remote_rng_state(const AnyRef& actor) {
  return actor.call(kRngState, {Value()}).then([](const Value& v) { return internal::from_value<State>(v); });
}

Future<void> load_remote_rng_state(const AnyRef& actor, State state) {
  return set(actor, kRngState, internal::to_value(std::move(state)));
}

}  // namespace troupe::nn
