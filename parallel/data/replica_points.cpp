#include "parallel/data/replica_points.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <vector>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/model_part.h"
#include "autograd/distributed/optim/owned_state.h"
#include "autograd/distributed/optim/spare_states.h"
#include "core/base/generator.h"
#include "core/base/seed_stream.h"
#include "core/graph/copy_on_write.h"
#include "core/tensor/creation.h"
#include "rref/ref_table.h"

namespace troupe::parallel {
namespace {

using internal::actors::current_cell;

struct UndoPoint {
  StateDict state;
  std::vector<uint32_t> versions;  // of the parameters, which no forward pass changes
};
using UndoPoints = std::map<int64_t, UndoPoint>;  // of an actor, by the step that begins; two at most

std::vector<uint32_t> versions_of(Actor& actor) {
  std::vector<uint32_t> versions;
  for (const Tensor& p : actor.parameters()) versions.push_back(p.version());
  return versions;
}

StateDict own(Actor& actor) { return internal::forward_state_of(actor, *current_cell()); }

// The step of an optimizer is behind the point that was kept last.
void after_step(Actor& actor) {
  auto& points = current_cell()->keep<UndoPoints>();
  if (!points.empty()) points.rbegin()->second.versions = versions_of(actor);
}

StateDict keep_point(Actor& actor, int64_t step) {
  auto& points = current_cell()->keep<UndoPoints>();
  optim::ModelPart::here()->after_steps(after_step);
  StateDict state = own(actor);
  const bool stale = optim::ModelPart::here()->has_stale_spares();
  points.insert_or_assign(step, UndoPoint{state, versions_of(actor)});
  std::erase_if(points, [&](const auto& p) { return p.first < step - 1 || p.first > step; });
  if (stale) state[kStaleSpares] = empty({0}, int64);
  return state;
}

void undo(Actor& actor, int64_t step) {
  const auto& points = current_cell()->keep<UndoPoints>();
  const auto at = points.find(step);
  if (at == points.end())
    throw_invalid("[data parallel] actor " + current_cell()->label() + " kept no point of step " +
                  std::to_string(step) + " to go back to");
  if (at->second.versions != versions_of(actor))
    throw_invalid("[data parallel] actor " + current_cell()->label() +
                  " changed its parameters by itself since step " + std::to_string(step) +
                  " began, which cannot be taken back: let an optim::Distributed change them");
  internal::load_forward_state(actor, *current_cell(), at->second.state);
}

StateDict trained(Actor& actor) {
  StateDict flags;
  if (const nn::HeldModule held{actor})
    for (const auto& [name, t] : held->named_parameters())
      flags[name] =
          tensor(std::vector<int64_t>{t.requires_grad(), static_cast<int64_t>(t.device().kind)}, int64);
  return flags;
}

void check_kind(const std::string& name, const Tensor& t, Device::Kind expected) {
  if (t.device().kind == expected) return;
  const auto word = [](Device::Kind kind) { return Device(kind).str(); };
  throw_invalid(
      fmt::format("[data parallel] the new actor {} has {} on {}, and the one that it is like on {}: let the "
                  "model find its device in its constructor (net.to(...))",
                  current_cell()->label(), name, word(t.device().kind), word(expected)));
}

Task<void> mirror(Actor& actor, AnyRef replica) {
  const auto asked = kTrained.ask(replica);
  const StateDict flags = co_await asked;
  const nn::HeldModule held{actor};
  if (!held) co_return;
  for (const auto& [name, t] : held->named_parameters())
    if (const auto at = flags.find(name); at != flags.end()) {
      const auto of_other = at->second.to_vector<int64_t>();
      check_kind(name, t, static_cast<Device::Kind>(of_other[1]));
      Tensor(t).requires_grad_(of_other[0]);
    }
}

WholeState whole(Actor& actor) {
  internal::OwnedState all = internal::state_of_actor(actor, *current_cell());
  return {std::move(all.model), std::move(all.rest)};
}

// Masks of dropout, say, are others than those of the replica that it is like.
void draw_apart(Actor& actor, uint64_t rank) {
  const auto apart = [rank](const Generator::Position& at) {
    Generator random;
    random.set_position(at);
    return random.split(rank).position();
  };
  current_stream().set_position(apart(current_stream().position()));
  const nn::HeldModule held{actor};
  if (!held) return;
  std::map<std::string, Tensor> places = held->rng_state();
  for (auto& [name, place] : places) {
    const auto at = place.to_vector<int64_t>();
    const auto own = apart({static_cast<uint64_t>(at[0]), static_cast<uint64_t>(at[1])});
    place = tensor(std::vector<int64_t>{static_cast<int64_t>(own.seed), static_cast<int64_t>(own.counter)},
                   int64);
  }
  held->load_rng_state(places);
}

void become(Actor& actor, WholeState came, StateDict own, uint64_t rank) {
  internal::load_actor(actor, *current_cell(), {std::move(came.first), std::move(came.second)});
  if (own.empty())
    draw_apart(actor, rank);
  else
    internal::load_forward_state(actor, *current_cell(), std::move(own));
}

Task<void> heal(Actor& actor, AnyRef replica, StateDict own, uint64_t rank) {
  const auto asked = kWholeState.ask(replica);
  WholeState came = co_await asked;
  become(actor, std::move(came), std::move(own), rank);
}

// Calls f(its name, piece) of the pieces that are parameters themselves.
void for_each_parameter(const optim::ModelPart::AllPieces& all, bool spares,
                        const std::function<void(const std::string&, const Tensor&)>& f) {
  for (size_t s = 0; s < all.size(); ++s) {
    const auto& some = spares ? all[s]->spares() : all[s]->pieces();
    for (size_t i = 0; i < some.size(); ++i)
      if (some[i].piece.defined() && !some[i].names.empty())
        f(std::to_string(s) + "." + std::to_string(i), some[i].piece);
  }
}

std::map<std::string, StateDict> pieces(Actor&) {
  auto all = optim::states_here();
  for_each_parameter(optim::ModelPart::pieces_here(), false, [&](const std::string& name, const Tensor& t) {
    all[""][name] = internal::lazy_copy(t.detach());
  });
  return all;
}

Task<void> take_spares(Actor&, AnyRef before) {
  const auto asked = kPieces.ask(before);
  std::map<std::string, StateDict> came = co_await asked;
  const NoGradGuard guard;
  for_each_parameter(optim::ModelPart::pieces_here(), true, [&](const std::string& name, const Tensor& t) {
    Tensor(t.detach()).copy_(came[""].at(name));
  });
  came.erase("");
  optim::load_spares(came);
}

WholeState spares(Actor& actor) {
  internal::OwnedState all = internal::state_of_actor(actor, *current_cell(), optim::spares_here());
  for (const auto& some : optim::ModelPart::pieces_here())
    for (const auto& spare : some->spares())
      for (const std::string& name : spare.names) {
        all.model.erase(name);
        if (spare.piece.defined()) all.model[name] = internal::lazy_copy(spare.piece.detach());
      }
  return {std::move(all.model), std::move(all.rest)};
}

Task<void> stand_in(Actor& actor, AnyRef holder, AnyRef before, StateDict own, uint64_t rank) {
  const auto asked = kSpares.ask(holder);
  WholeState came = co_await asked;
  become(actor, std::move(came), std::move(own), rank);
  const auto taking = take_spares(actor, before);
  co_await taking;
}

Task<void> gather(Actor&) {
  for (const auto& some : optim::ModelPart::pieces_here()) {
    const Future<void> gathering = some->gather();
    co_await gathering;
  }
}

void retire(Actor&, const std::string& why) {
  auto& cell = *current_cell();
  internal::rref::RefTable::of(cell.worker())
      ->end(cell.id(), Error(ErrorKind::invalid, "[rref] actor " + cell.label() + " has ended: " + why));
}

}  // namespace

void install_points(internal::actors::Worker& worker) {
  using internal::actors::serve;
  serve<kKeepPoint, keep_point>(worker);
  serve<kUndo, undo>(worker);
  serve<kMirror, mirror>(worker);
  serve<kTrained, trained>(worker);
  serve<kHeal, heal>(worker);
  serve<kWholeState, whole>(worker);
  serve<kOwnState, own>(worker);
  serve<kStandIn, stand_in>(worker);
  serve<kTakeSpares, take_spares>(worker);
  serve<kPieces, pieces>(worker);
  serve<kSpares, spares>(worker);
  serve<kGather, gather>(worker);
  serve<kRetire, retire>(worker);
}

}  // namespace troupe::parallel
