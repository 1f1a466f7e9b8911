#include "autograd/distributed/optim/module_actor.h"

#include "actors/cell/actor_cell.h"
#include "actors/cell/task.h"
#include "actors/worker/common_method.h"
#include "autograd/distributed/optim/first_values.h"
#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/model_part.h"
#include "ops/random.h"

namespace troupe::nn {
namespace {

using State = std::map<std::string, Tensor>;

using internal::actors::CommonMethod;

// Setters take effect although nobody keeps their future.
constexpr internal::actors::MessageOptions kSets{.uncancellable = true};

/// Anybody to any actor: remote_parameters().
constexpr CommonMethod<State()> kParameters{"nn.parameters"};
/// Anybody to any actor: remote_state_dict().
constexpr CommonMethod<State()> kStateDict{"nn.state_dict"};
/// Anybody to any actor: load_remote_state_dict().
constexpr CommonMethod<void(State state)> kLoad{"nn.load_state_dict", kSets};
/// Anybody to any actor: set_remote_training().
constexpr CommonMethod<void(bool on)> kTrain{"nn.train", kSets};
/// Anybody to any actor: remote_to().
constexpr CommonMethod<void(std::string device)> kTo{"nn.to", kSets};
/// Anybody to any actor: remote_training().
constexpr CommonMethod<bool()> kTraining{"nn.training"};
/// Anybody to any actor: remote_rng_state(), with no state. The state.
constexpr CommonMethod<State(std::optional<State> state)> kRngState{"nn.rng_state"};
/// Anybody to any actor: load_remote_rng_state(). The state.
constexpr CommonMethod<State(std::optional<State> state)> kLoadRngState{"nn.rng_state", kSets};

State copies(const State& state) {
  State out;
  for (const auto& [name, tensor] : state) {
    const Tensor t = tensor.detach();
    out[name] = t.device().is_cpu() ? t.clone_data() : t.data_on(cpu);
  }
  return out;
}

Task<State> parameters(Actor& actor, internal::actors::Invocation& call) {
  const Future<void> first = optim::first_values();
  co_await first;
  State state;
  for (auto& [name, tensor] : HeldModule(actor, call)->named_parameters()) state[name] = tensor;
  co_return copies(state);
}

Task<State> state_dict(Actor& actor, internal::actors::Invocation& call) {
  const Future<void> first = optim::first_values();
  co_await first;
  co_return copies(HeldModule(actor, call)->state_dict());
}

Task<void> load(Actor& actor, internal::actors::Invocation& call, State state) {
  const Future<void> first = optim::first_values();
  co_await first;
  HeldModule(actor, call)->load_state_dict(state);
  optim::parameters_written();
}

void train(Actor& actor, internal::actors::Invocation& call, bool on) { HeldModule(actor, call)->train(on); }

void to_device(Actor& actor, internal::actors::Invocation& call, const std::string& device) {
  HeldModule(actor, call)->to(Device(device));
}

bool training(Actor& actor, internal::actors::Invocation& call) {
  return HeldModule(actor, call)->training();
}

constexpr const char* kOfActor = "actor";
constexpr const char* kOfModule = "net.";

State rng_state_of(Actor& actor) {
  State state{{kOfActor, ops::get_rng_state()}};
  if (const HeldModule held{actor})
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
  const HeldModule held(actor);
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

Task<State> rng_state(Actor& actor, internal::actors::Invocation& call, std::optional<State> state) {
  const Future<void> first = optim::first_values();
  co_await first;
  if (state) load_rng_state(actor, std::move(*state), *call.cell());
  co_return rng_state_of(actor);
}

template <class T>
Future<void> done(const Future<T>& answer) {
  return answer.then([](const T&) {});
}

}  // namespace

}  // namespace troupe::nn

namespace troupe::internal {

troupe::nn::NamedTensors named_parameters_of(Actor& actor) {
  const troupe::nn::HeldModule held(actor);
  return held ? held->named_parameters() : troupe::nn::NamedTensors();
}

void install_modules(actors::Worker& worker) {
  actors::set_parameter_finder([](MadeParts& parts) { return troupe::nn::MadeModule(parts).parameters(); });
  using namespace troupe::nn;
  using actors::serve;
  serve<kParameters, parameters>(worker);
  serve<kStateDict, state_dict>(worker);
  serve<kLoad, load>(worker);
  serve<kTrain, train>(worker);
  serve<kTo, to_device>(worker);
  serve<kTraining, training>(worker);
  serve<kRngState, rng_state>(worker);
}

}  // namespace troupe::internal

namespace troupe::nn {

Future<State> remote_parameters(const AnyRef& actor) { return kParameters.ask(actor); }
Future<State> remote_state_dict(const AnyRef& actor) { return kStateDict.ask(actor); }

Future<void> load_remote_state_dict(const AnyRef& actor, State state) {
  return done(kLoad.ask(actor, std::move(state)));
}

Future<void> set_remote_training(const AnyRef& actor, bool on) { return done(kTrain.ask(actor, on)); }

Future<void> remote_to(const AnyRef& actor, const std::string& device) {
  return done(kTo.ask(actor, device));
}

Future<bool> remote_training(const AnyRef& actor) { return kTraining.ask(actor); }

Future<State> remote_rng_state(const AnyRef& actor) { return kRngState.ask(actor, std::nullopt); }

Future<void> load_remote_rng_state(const AnyRef& actor, State state) {
  return done(kLoadRngState.ask(actor, std::move(state)));
}

}  // namespace troupe::nn
