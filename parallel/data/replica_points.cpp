#include "parallel/data/replica_points.h"

#include <map>
#include <vector>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/model_part.h"
#include "autograd/distributed/optim/owned_state.h"
#include "core/base/generator.h"
#include "core/base/seed_stream.h"
#include "core/tensor/creation.h"

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
  points.insert_or_assign(step, UndoPoint{state, versions_of(actor)});
  std::erase_if(points, [&](const auto& p) { return p.first < step - 1 || p.first > step; });
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
      flags[name] = tensor(std::vector<int64_t>{t.requires_grad()}, int64);
  return flags;
}

Task<void> mirror(Actor& actor, AnyRef replica) {
  const auto asked = kTrained.ask(replica);
  const StateDict flags = co_await asked;
  const nn::HeldModule held{actor};
  if (!held) co_return;
  for (const auto& [name, t] : held->named_parameters())
    if (const auto at = flags.find(name); at != flags.end())
      Tensor(t).requires_grad_(at->second.to_vector<int64_t>()[0]);
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

Task<void> heal(Actor& actor, AnyRef replica, StateDict own, uint64_t rank) {
  const auto asked = kWholeState.ask(replica);
  WholeState came = co_await asked;
  internal::load_actor(actor, *current_cell(), {std::move(came.first), std::move(came.second)});
  if (own.empty())
    draw_apart(actor, rank);
  else
    internal::load_forward_state(actor, *current_cell(), std::move(own));
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
}

}  // namespace troupe::parallel
