// The members of a DataParallel change, between two steps.
#include <fmt/format.h>

#include "actors/worker/worker.h"
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "core/async/future_combinators.h"
#include "parallel/data/data_parallel.h"
#include "parallel/data/replica_points.h"
#include "rref/ref_table.h"

namespace troupe::parallel {
namespace {

// An optimizer, and what it made at the newcomers.
using Follower =
    std::pair<optim::DistributedOptimizer*, std::vector<optim::DistributedOptimizer::NamesByGroup>>;

}  // namespace

void AnyDataParallel::reform(const std::vector<ReplicaSeat>& seats) {
  check_may_block("another set of replicas");
  if (divides()) check_pieces_stay(seats);
  if (frame().context)
    throw_invalid(
        "[data parallel] replicas come and go between two steps, and an autograd::Context is active here: "
        "end "
        "it first");
  ready_.get();
  const auto optimizers = optim::DistributedOptimizer::all_of(replicas_);
  std::vector<AnyRef> now, newcomers;
  std::vector<size_t> seat_of;  // of a newcomer
  AnyRef source;
  for (const ReplicaSeat& seat : seats) {
    if (seat.stays) {
      now.push_back(replicas_.at(*seat.stays));
      if (!source) source = now.back();
      continue;
    }
    if (seat.path.empty()) {
      now.push_back(make_replica(seat.worker));
    } else {
      const internal::rref::RefTable::SpawnAs as(replicas_.front().handle()->table(), seat.path);
      now.push_back(make_replica(seat.worker));
    }
    seat_of.push_back(now.size() - 1);
    newcomers.push_back(now.back());
  }
  if (!source) throw_invalid("[data parallel] none of the replicas stays, and only they have the model");
  if (divides())
    for (const size_t seat : seat_of)  // one that lives brings its pieces up to date
      if (lives(replicas_[seat])) kTakeSpares.ask(now[(seat + 1) % size()], replicas_[seat]).get();
  ask_all(newcomers, [&](size_t i) { return newcomers[i].ready(); });
  ask_all(newcomers, [&](size_t i) { return kMirror.ask(newcomers[i], source); });
  std::shared_ptr<const Shared> shared;
  const Future<void> ready = join(now, Group(now), true, shared);
  ready.get();
  std::vector<Follower> followers;
  for (auto* optimizer : optimizers) followers.emplace_back(optimizer, optimizer->create_at(newcomers));
  ask_all(newcomers, [&](size_t i) {
    const size_t seat = seat_of[i], n = now.size();
    if (!divides()) return kHeal.ask(newcomers[i], source, seats[seat].own, uint64_t{seat});
    return kStandIn.ask(newcomers[i], now[(seat + 1) % n], now[(seat + n - 1) % n], seats[seat].own,
                        uint64_t{seat});
  });
  if (divides()) ask_all(now, [&](size_t i) { return kGather.ask(now[i]); });
  for (auto& [optimizer, names] : followers) optimizer->follow(replicas_, now, names);
  replicas_ = std::move(now);
  shared_ = std::move(shared);
  ready_ = ready;
  replicas_changed(replicas_);
}

// The replica behind it has the pieces of one that goes.
void AnyDataParallel::check_pieces_stay(const std::vector<ReplicaSeat>& seats) const {
  if (options_.spare_pieces == 0)
    throw_invalid(
        "[data parallel] replicas that divide state among them (Shard::state, gradients or all) stay as many "
        "and where they are: write Shard::none, or .spare_pieces = 1, with which others can take their "
        "places; or make a new DataParallel from a checkpoint");
  bool same = seats.size() == size();
  for (size_t r = 0; same && r < seats.size(); ++r) same = seats[r].stays.value_or(r) == r;
  if (!same)
    throw_invalid(
        fmt::format("[data parallel] {} replicas that divide state among them stay as many: each that goes "
                    "needs one in its place (replace(); troupe run --spares, --wait)",
                    size()));
  for (size_t r = 0; r < seats.size(); ++r)
    if (!seats[r].stays && !seats[(r + 1) % size()].stays)
      throw_error(
          ErrorKind::failed,
          fmt::format("[data parallel] ranks {} and {} go at once, and only they had the pieces of rank "
                      "{}: go on from a checkpoint",
                      r, (r + 1) % size(), r));
}

// A newcomer that cannot come, or is lost at once, leaves the others as they were.
void AnyDataParallel::reform_or_restore(const std::vector<ReplicaSeat>& seats) {
  try {
    reform(seats);
  } catch (...) {
    const Error why = current_error();
    if (why.kind() == ErrorKind::invalid) throw;
    try {
      reform(this->seats());
    } catch (const Error&) {  // one of them is lost, too, and the next call says so
    }
    throw why;
  }
}

void AnyDataParallel::replace(size_t rank, const Place& worker) {
  if (rank >= size())
    throw_invalid(
        fmt::format("[data parallel] replace({}) of {} replicas: ranks count from 0", rank, size()));
  const AnyRef before = replicas_[rank];
  const auto& members = before.worker().members();
  auto all = seats();
  all[rank] = {.stays = {},
               .worker = members.name_of(worker.in(members)),
               .path = before.handle()->path(),
               .own = own_state(rank)};
  reform_or_restore(all);
}

void AnyDataParallel::shrink(size_t rank) {
  if (rank >= size() || size() == 1)
    throw_invalid(fmt::format("[data parallel] shrink({}) of {} replicas: {}", rank, size(),
                              size() == 1 ? "one has to stay" : "ranks count from 0"));
  auto all = seats();
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(rank));
  reform(all);
}

void AnyDataParallel::grow(const Place& worker) {
  const auto& members = replicas_.front().worker().members();
  auto all = seats();
  all.push_back({.stays = {}, .worker = members.name_of(worker.in(members)), .path = {}, .own = {}});
  reform_or_restore(all);
}

}  // namespace troupe::parallel
