#include "autograd/distributed/optim/owned_state.h"
#include "autograd/distributed/optim/state_of_steps.h"

#include <malloc.h>

#include <algorithm>
#include <functional>
#include <set>

#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/model_part.h"
#include "autograd/distributed/optim/saved_modes.h"
#include "core/base/type_name.h"
#include "core/codec/keep.h"
#include "core/graph/copy_on_write.h"
#include "core/tensor/creation.h"
#include "data/streams/feed.h"
#include "nn/module_registry.h"
#include "ops/random.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace troupe::internal {
namespace {

constexpr const char* kStream = "stream";
constexpr const char* kSelf = "self.";  // of an actor that is Stateful
constexpr const char* kHeld = "net.";   // of the module of an actor
constexpr const char* kBuffer = "buffer.";

[[noreturn]] void refuse(const std::string& why) { throw_invalid("[checkpoint] " + why); }

void add(StateDict& to, const std::string& name, Tensor t) {
  if (!to.emplace(name, std::move(t)).second) refuse("two things are called \"" + name + "\"");
}

void add_all(StateDict& to, const std::string& prefix, const StateDict& from) {
  for (const auto& [name, t] : from) add(to, prefix + name, t);
}

Tensor take(StateDict& from, const std::string& name) {
  const auto node = from.extract(name);
  if (node.empty()) refuse("it has no \"" + name + "\"");
  return node.mapped();
}

StateDict take_all(
    StateDict& from, const std::string& prefix,
    bool (*chosen)(const std::string& name) = [](const std::string&) { return true; }) {
  StateDict out;
  for (auto it = from.lower_bound(prefix); it != from.end() && it->first.starts_with(prefix);) {
    if (!chosen(it->first)) {
      ++it;
      continue;
    }
    out[it->first.substr(prefix.size())] = it->second;
    it = from.erase(it);
  }
  return out;
}

std::string numbered(std::map<std::string, int>& counts, const std::string& name) {
  return name + "#" + std::to_string(counts[name]++);
}

void gather(nn::Module& module, std::vector<nn::Module*>& all) {
  all.push_back(&module);
  for (auto& [name, child] : module.children()) gather(*child, all);
}

std::vector<nn::Module*> all_in(nn::Module& module) {
  std::vector<nn::Module*> all;
  gather(module, all);
  return all;
}

void load_module(nn::Module& module, const StateDict& model) {
  for (const auto& [name, t] : module.state_dict())
    if (const auto at = model.find(name); at != model.end() && at->second.dtype() != t.dtype())
      refuse("\"" + name + "\" is " + at->second.summary() + ", here it is " + t.summary());
  module.load_state_dict(model);
}

// Modules and leaves that an actor made, or that no actor did (null).
class Owned {
 public:
  explicit Owned(const void* actor, nn::Module* held = nullptr, const MadeParts* parts = nullptr)
      : held_(held) {
    std::map<std::string, int> counts;
    find_modules(actor, counts);
    for (Stateful* s : Stateful::made_by(actor))
      statefuls_.emplace_back(numbered(counts, s->state_name()) + ".", s);
    find_tensors(actor, parts);
  }

  void save(OwnedState& to, const StandIns& stand_ins = {}) const {
    for (const auto& [prefix, module] : modules_) {
      for (const auto& [name, t] : module->state_dict()) add(to.model, prefix + name, internal::lazy_copy(t));
      const std::string rest = rest_of(prefix);
      add_all(to.rest, rest + "rng.", module->rng_state());
      add_all(to.rest, rest, modes_of(*module));
    }
    for (const auto& [name, t] : tensors_) add(to.model, name, internal::lazy_copy(t.detach()));
    for (const auto& [prefix, s] : statefuls_) {
      const auto at = stand_ins.find(s);
      add_all(to.rest, prefix, (at == stand_ins.end() ? s : at->second)->state());
    }
  }

  // What it takes is taken out.
  void load(OwnedState& from) {
    for (auto& [name, t] : tensors_) restore(t, take(from.model, name));
    for (auto at = modules_.rbegin(); at != modules_.rend(); ++at) {  // the actor's own is first: the rest
      const auto& [prefix, module] = *at;
      load_module(*module, take_all(from.model, prefix));
      const std::string rest = rest_of(prefix);
      module->load_rng_state(take_all(from.rest, rest + "rng."));
      set_modes(*module, take_all(from.rest, rest, is_modes));
    }
    for (auto at = statefuls_.rbegin(); at != statefuls_.rend(); ++at)  // schedules before what they set
      at->second->load_state(take_all(from.rest, at->first));
  }

  void save_forward(StateDict& to) const {
    for (const auto& [prefix, module] : modules_) {
      for (const auto& [name, t] : module->named_buffers())
        add(to, rest_of(prefix) + kBuffer + name, lazy_copy(t));
      add_all(to, rest_of(prefix) + "rng.", module->rng_state());
    }
    for (const auto& [prefix, s] : statefuls_)
      if (!is_of_steps(s)) add_all(to, prefix, s->state());
  }
  void load_forward(StateDict& from) {
    const NoGradGuard guard;
    for (const auto& [prefix, module] : modules_) {
      for (const auto& [name, t] : module->named_buffers()) {
        Tensor(t).copy_(take(from, rest_of(prefix) + kBuffer + name));
      }
      module->load_rng_state(take_all(from, rest_of(prefix) + "rng."));
    }
    for (const auto& [prefix, s] : statefuls_)
      if (!is_of_steps(s)) s->load_state(take_all(from, prefix));
  }

 private:
  static bool is_of_steps(const Stateful* s) {
    return dynamic_cast<const optim::Optimizer*>(s) || dynamic_cast<const optim::StateOfSteps*>(s);
  }
  static std::string rest_of(const std::string& prefix) { return prefix.empty() ? kHeld : prefix; }

  void find_modules(const void* actor, std::map<std::string, int>& counts) {
    std::set<const nn::Module*> inside;
    if (held_) {
      modules_.emplace_back("", held_);
      for (const nn::Module* m : all_in(*held_)) inside.insert(m);
    }
    const auto alive = nn::modules_made_by(actor);
    for (nn::Module* m : alive)
      for (auto& [name, child] : m->children())
        for (const nn::Module* below : all_in(*child)) inside.insert(below);
    for (nn::Module* m : alive)
      if (!inside.contains(m)) modules_.emplace_back(numbered(counts, class_of(*m)) + ".", m);
  }
  // Tensors to train, frozen or not, that are in no module, nor pieces of such.
  void find_tensors(const void* actor, const MadeParts* parts) {
    std::set<const TensorImpl*> known;
    if (actor)
      for (const auto& some : optim::ModelPart::pieces_here())
        for (const auto& p : some->pieces())
          if (p.piece.defined()) known.insert(p.piece.impl());  // shows elements of a parameter
    for (const auto& [prefix, module] : modules_)
      for (const auto& [name, t] : module->named_parameters()) known.insert(t.impl());
    for (const auto& [prefix, s] : statefuls_)
      if (const auto* optimizer = dynamic_cast<const optim::Optimizer*>(s))
        for (size_t i = 0; i < optimizer->params().size(); ++i)
          if (const Tensor& t = optimizer->params()[i]; known.insert(t.impl()).second)
            tensors_.emplace_back(prefix + "param" + std::to_string(i), t);
    size_t number = 0;
    for (size_t i = 0; parts && i < parts->leaves.size(); ++i)
      if (const Tensor& t = parts->leaves[i]; !t.is_sole_handle() && known.insert(t.impl()).second)
        tensors_.emplace_back("tensor#" + std::to_string(number++), t);
  }
  static std::string class_of(const nn::Module& module) {
    const std::string name = class_name(typeid(module));
    return name.substr(0, name.find('<'));
  }

  nn::Module* held_;
  std::vector<std::pair<std::string, nn::Module*>> modules_;
  std::vector<std::pair<std::string, Stateful*>> statefuls_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

void refuse_left(const OwnedState& state, const std::string& who) {
  std::string left;
  for (const StateDict* part : {&state.model, &state.rest})
    for (const auto& [name, t] : *part) left += (left.empty() ? "" : ", ") + name;
  if (!left.empty()) refuse(who + " has nothing that fits " + left);
}

}  // namespace

OwnedState state_of_actor(Actor& actor, const actors::ActorCell& cell, const StandIns& stand_ins) {
  OwnedState out;
  out.rest[kStream] = ops::get_rng_state();
  if (const auto* own = dynamic_cast<const Stateful*>(&actor)) {
    add_all(out.rest, kSelf, own->state());
  } else {
    const nn::HeldModule held(actor);
    Owned(&cell, held.get(), actor.made_parts().get()).save(out, stand_ins);
  }
  return out;
}

void load_actor(Actor& actor, const actors::ActorCell& cell, OwnedState state) {
  ops::set_rng_state(take(state.rest, kStream));
  if (auto* own = dynamic_cast<Stateful*>(&actor)) {
    own->load_state(take_all(state.rest, kSelf));
  } else {
    const nn::HeldModule held(actor);
    Owned(&cell, held.get(), actor.made_parts().get()).load(state);
    optim::parameters_written();
  }
  refuse_left(state, "actor " + cell.label());
}

StateDict forward_state_of(Actor& actor, const actors::ActorCell& cell) {
  StateDict out{{kStream, ops::get_rng_state()}};
  if (const auto* own = dynamic_cast<const Stateful*>(&actor)) {
    add_all(out, kSelf, own->state());
  } else {
    const nn::HeldModule held(actor);
    Owned(&cell, held.get(), actor.made_parts().get()).save_forward(out);
  }
  return out;
}

void load_forward_state(Actor& actor, const actors::ActorCell& cell, StateDict state) {
  ops::set_rng_state(take(state, kStream));
  if (auto* own = dynamic_cast<Stateful*>(&actor)) {
    own->load_state(take_all(state, kSelf));
  } else {
    const nn::HeldModule held(actor);
    Owned(&cell, held.get(), actor.made_parts().get()).load_forward(state);
  }
  refuse_left({.model = {}, .rest = std::move(state)}, "actor " + cell.label());
}

std::string bytes_in_no_state(Actor& actor, const actors::ActorCell& cell) {
  if (cell.type().name.starts_with("troupe::") || dynamic_cast<Stateful*>(&actor)) return {};
  const auto* object = static_cast<const char*>(dynamic_cast<const void*>(&actor));
  const size_t size = malloc_usable_size(const_cast<char*>(object));  // actors are made with new
  std::string bytes(object, size);
  const auto cover = [&](const void* from, size_t n) {
    const auto* at = static_cast<const char*>(from);
    if (std::less<>()(at, object) || !std::less<>()(at, object + size)) return;
    const auto begin = static_cast<size_t>(at - object);
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin), std::min(n, size - begin), '\0');
  };
  for (const nn::Module* m : nn::modules_within(object, size))
    cover(dynamic_cast<const void*>(m), m->object_size());
  for (const Stateful* s : Stateful::made_by(&cell)) {
    cover(s, sizeof *s);  // its place among all that are
    if (const auto* keep = dynamic_cast<const Keep*>(s)) {
      cover(keep, sizeof *keep);
      for (const auto& [at, n] : keep->covers()) cover(at, n);
    }
    // Others have what changes elsewhere in memory.
    if (const auto* scheduler = dynamic_cast<const optim::Scheduler*>(s)) cover(scheduler, sizeof *scheduler);
    if (const auto* plateau = dynamic_cast<const optim::Plateau*>(s)) cover(plateau, sizeof *plateau);
    if (const auto* feed = dynamic_cast<const datasets::Feed*>(s)) cover(feed, sizeof *feed);
    if (const auto* scaler = dynamic_cast<const optim::LossScaler*>(s)) cover(scaler, sizeof *scaler);
  }
  return bytes;
}

OwnedState state_of_driver() {
  OwnedState out;
  out.rest[kStream] = ops::get_rng_state();
  Owned(nullptr).save(out);
  return out;
}

void load_driver(OwnedState state) {
  ops::set_rng_state(take(state.rest, kStream));
  Owned(nullptr).load(state);
  refuse_left(state, "the driver");
}

}  // namespace troupe::internal
