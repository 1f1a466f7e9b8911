// Other actors in the places of those of Pipelines, between two steps.
#include <fmt/format.h>

#include "actors/worker/worker.h"
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "parallel/data/replica_points.h"
#include "parallel/pipeline/pipelines.h"
#include "rref/ref_table.h"

namespace troupe::parallel {

bool Pipelines::can_replace() const { return has_replicas_ && options_.shard == Shard::none && model_; }

std::vector<AnyRef> Pipelines::helpers() const {
  std::vector<AnyRef> all;
  for (const Pipeline& p : pipelines_)
    for (AnyRef& a : p.helpers()) all.push_back(std::move(a));
  return all;
}

size_t Pipelines::unit_of(size_t member) const { return at_.all.coordinate(member, dim_); }

MeshPoints Pipelines::points_for(size_t seats) const {
  std::vector<MeshDim> dims = at_.all.dims();
  const size_t each = at_.all.size() / at_.replicas;
  if (seats == 0)
    throw_error(
        ErrorKind::failed,
        fmt::format("[pipelines] each of the {} replicas ({}) has lost a worker, and there are none in "
                    "their places: go on from a checkpoint",
                    at_.replicas, at_.all.str()));
  if (seats % each != 0)
    throw_invalid(
        fmt::format("[pipelines] {} actors come and go together, those of a replica ({}), and there would be "
                    "{}: each that goes needs a worker in its place (replace(); troupe run --spares, --wait)",
                    each, at_.all.str(), seats));
  dims[at_.all.index(dim_)].size = seats / each;
  return MeshPoints(std::move(dims));
}

std::vector<AnyRef> Pipelines::sources(const std::vector<ReplicaSeat>& seats,
                                       const MeshPoints& points) const {
  const auto same_part = [&](size_t p, size_t before) {
    return std::ranges::all_of(points.dims(), [&](const MeshDim& d) {
      return d.name == dim_ || points.coordinate(p, d.name) == at_.all.coordinate(before, d.name);
    });
  };
  std::vector<AnyRef> all;
  for (size_t p = 0; p < seats.size(); ++p) {
    AnyRef from = seats[p].stays ? actors_[*seats[p].stays] : AnyRef();
    for (size_t before = 0; before < actors_.size() && !from; ++before)
      if (same_part(p, before) && lives(actors_[before])) from = actors_[before];
    if (!from)
      throw_error(
          ErrorKind::failed,
          fmt::format("[pipelines] the replicas of {} {} are all lost, and only they had its parameters: "
                      "go on from a checkpoint",
                      stages_, points.coordinate(p, stages_)));
    all.push_back(std::move(from));
  }
  return all;
}

std::vector<AnyRef> Pipelines::spawn_on(const std::vector<ReplicaSeat>& seats,
                                        const MeshPoints& points) const {
  std::vector<std::string> workers(points.members().size());
  std::vector<std::string> paths;
  for (size_t p = 0; p < seats.size(); ++p) {
    const ReplicaSeat& seat = seats[p];
    const std::string at = seat.stays ? actors_[*seat.stays].owner_name() : seat.worker;
    std::string& worker = workers[points.member(p)];
    if (!worker.empty() && worker != at)
      throw_invalid(
          fmt::format("[pipelines] the stages of one worker go to another one together, and not to {} and {}",
                      worker, at));
    worker = at;
    paths.push_back(seat.stays ? actors_[*seat.stays].handle()->path() : seat.path);
  }
  const std::vector<Place> places(workers.begin(), workers.end());
  const internal::rref::RefTable::SpawnAs as(here_.table(), std::move(paths));
  return model_->make(Mesh(here_.table().worker(), points.dims(), places));
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
  const MeshPoints points = points_for(seats.size());
  const auto from = sources(seats, points);
  ready().get();
  const auto optimizers = optim::DistributedOptimizer::all_of(actors_);
  const auto now = spawn_on(seats, points);
  ask_all(now, [&](size_t p) { return now[p].ready(); });
  ask_all(now, [&](size_t p) { return kMirror.ask(now[p], from[p]); });
  Arrangement at = arranged(points);
  Pipes pipelines = make(now, at, true);
  for (const Pipeline& p : pipelines) p.ready_.get();
  std::vector<std::vector<optim::DistributedOptimizer::NamesByGroup>> names;
  for (auto* optimizer : optimizers) names.push_back(optimizer->create_at(now));
  std::vector<StateDict> own;
  for (size_t p = 0; p < now.size(); ++p)
    own.push_back(seats[p].stays ? own_state(*seats[p].stays) : seats[p].own);
  ask_all(now,
          [&](size_t p) { return kHeal.ask(now[p], from[p], own[p], uint64_t{points.coordinate(p, dim_)}); });
  for (size_t i = 0; i < optimizers.size(); ++i) optimizers[i]->follow(actors_, now, names[i]);
  model_->take(points, now);
  at_ = std::move(at);
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
    all[p] = {.stays = {}, .worker = coming, .path = before.handle()->path(), .own = own_state(p)};
  }
  if (!found)
    throw_invalid(fmt::format("[pipelines] worker {} has no actor of this mesh ({})", going, at_.all.str()));
  reform(all);
}

void Pipelines::shrink(size_t replica) {
  if (replica >= at_.replicas || at_.replicas == 1)
    throw_invalid(fmt::format("[pipelines] shrink({}) of {} replicas: {}", replica, at_.replicas,
                              at_.replicas == 1 ? "one has to stay" : "they count from 0"));
  std::vector<ReplicaSeat> others;
  for (ReplicaSeat& seat : seats())
    if (unit_of(*seat.stays) != replica) others.push_back(std::move(seat));
  reform(others);
}

}  // namespace troupe::parallel
