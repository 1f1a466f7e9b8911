// Other actors in the places of those of Pipelines, between two steps.
#include <fmt/format.h>

#include "actors/worker/worker.h"
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "parallel/data/replica_points.h"
#include "parallel/pipeline/pipelines.h"
#include "rref/ref_table.h"

namespace troupe::parallel {

bool Pipelines::can_replace() const { return replicas_ > 1 && options_.shard == Shard::none && model_; }

std::vector<AnyRef> Pipelines::helpers() const {
  std::vector<AnyRef> all;
  for (const Pipeline& p : pipelines_)
    for (AnyRef& a : p.helpers()) all.push_back(std::move(a));
  return all;
}

std::vector<AnyRef> Pipelines::sources(const std::vector<ReplicaSeat>& seats) const {
  std::vector<AnyRef> all;
  for (size_t p = 0; p < seats.size(); ++p) {
    const size_t stride = all_.stride(dim_), first = p - all_.coordinate(p, dim_) * stride;
    AnyRef source = seats[p].stays ? actors_[p] : AnyRef();
    for (size_t r = 0; r < replicas_ && !source; ++r)
      if (seats[first + r * stride].stays) source = actors_[first + r * stride];
    if (!source)
      throw_error(ErrorKind::failed,
                  fmt::format("[pipelines] the {} replicas of {} {} go at once, and only they had its "
                              "parameters: go on from a checkpoint",
                              replicas_, stages_, all_.coordinate(p, stages_)));
    all.push_back(std::move(source));
  }
  return all;
}

std::vector<AnyRef> Pipelines::spawn_on(const std::vector<ReplicaSeat>& seats) const {
  std::vector<Place> places;
  std::vector<std::string> paths;
  for (size_t p = 0; p < seats.size(); ++p) {
    places.emplace_back(seats[p].stays ? actors_[p].owner_name() : seats[p].worker);
    paths.push_back(actors_[p].handle()->path());
  }
  const internal::rref::RefTable::SpawnAs as(here_.table(), std::move(paths));
  return model_->make(Mesh(here_.table().worker(), all_.dims(), places));
}

void Pipelines::reform(const std::vector<ReplicaSeat>& seats) {
  check_may_block("other actors in a pipeline");
  if (frame().context)
    throw_invalid(
        "[pipelines] actors come and go between two steps, and an autograd::Context is active here: end it "
        "first");
  if (!can_replace())
    throw_invalid(
        "[pipelines] others can take the place of actors that parallel::spawn() made, with two replicas at "
        "least and Shard::none: write such, or go on from a checkpoint");
  bool same = seats.size() == actors_.size();
  for (size_t p = 0; same && p < seats.size(); ++p) same = seats[p].stays.value_or(p) == p;
  if (!same)
    throw_invalid(
        fmt::format("[pipelines] {} actors on a mesh ({}) stay as many: each that goes needs a worker in its "
                    "place (replace(); troupe run --spares, --wait)",
                    actors_.size(), all_.str()));
  const auto from = sources(seats);
  ready().get();
  const auto optimizers = optim::DistributedOptimizer::all_of(actors_);
  const auto now = spawn_on(seats);
  ask_all(now, [&](size_t p) { return now[p].ready(); });
  ask_all(now, [&](size_t p) { return kMirror.ask(now[p], from[p]); });
  Pipes pipelines = make(now, true);
  for (const Pipeline& p : pipelines) p.ready_.get();
  std::vector<std::vector<optim::DistributedOptimizer::NamesByGroup>> names;
  for (auto* optimizer : optimizers) names.push_back(optimizer->create_at(now));
  std::vector<StateDict> own;
  for (size_t p = 0; p < now.size(); ++p)
    own.push_back(seats[p].stays ? kOwnState.ask(actors_[p]).get() : seats[p].own);
  ask_all(now,
          [&](size_t p) { return kHeal.ask(now[p], from[p], own[p], uint64_t{all_.coordinate(p, dim_)}); });
  for (size_t i = 0; i < optimizers.size(); ++i) optimizers[i]->follow(actors_, now, names[i]);
  model_->take(now);
  const auto before = std::exchange(actors_, now);
  std::swap(pipelines_, pipelines);
  pipelines.clear();
  std::vector<Future<Value>> retired;
  for (const AnyRef& actor : before)
    if (lives(actor))
      retired.push_back(
          kRetire.ask(actor,
                      "others have come in the places of all actors of its mesh, since one of their workers "
                      "went: take references from the ActorMesh again"));
  for (const auto& r : retired) (void)r.wait();  // whoever is lost meanwhile has none
}

void Pipelines::replace(const Place& worker, const Place& by) {
  const auto& members = here_.table().worker().members();
  const std::string coming = members.name_of(by.in(members)), going = members.name_of(worker.in(members));
  auto all = seats();
  bool found = false;
  for (size_t p = 0; p < all.size(); ++p) {
    const AnyRef& before = actors_[p];
    if (before.owner_name() != going) continue;
    found = true;
    all[p] = {.stays = {},
              .worker = coming,
              .path = before.handle()->path(),
              .own = lives(before) ? kOwnState.ask(before).get() : StateDict()};
  }
  if (!found)
    throw_invalid(fmt::format("[pipelines] worker {} has no actor of this mesh ({})", going, all_.str()));
  reform(all);
}

}  // namespace troupe::parallel
