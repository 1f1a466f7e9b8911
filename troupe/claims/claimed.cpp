#include "troupe/claims/claimed.h"

#include <algorithm>

#include "actors/worker/guests.h"
#include "rref/ref_messages.h"
#include "troupe/claims/claim_messages.h"

namespace troupe::internal {

void Claimed::install(actors::Worker& worker, const std::shared_ptr<rref::RefTable>& references) {
  auto& claimed = worker.add_extension(std::unique_ptr<Claimed>(new Claimed(worker, *references)));
  kLook.serve(worker, [&claimed](WorkerId holder, bool share) { return claimed.look(holder, share); });
  kHold.serve(worker, [&claimed](WorkerId holder, uint64_t number, std::string who, bool share) {
    return claimed.hold({holder, number}, {std::move(who), share});
  });
  kFree.serve(worker, [&claimed](WorkerId holder, uint64_t number, bool gone) {
    claimed.free({holder, number}, gone);
  });
  kMeet.serve(worker, [] {});
  worker.add_metrics([&claimed](actors::Worker::Metrics& m) {
    const Lock lock(claimed.mutex_);
    m["claims"] = static_cast<int64_t>(claimed.holdings_.size());
  });
}

namespace {

// The program of a path (ActorCell::path()): the name of a guest; empty: the job's own.
std::string program_of_path(const std::string& path) {
  return path.starts_with("guest-") ? path.substr(0, path.find(':')) : "";
}

std::string program_of_holder(WorkerId holder) {
  return actors::is_guest(holder) ? actors::guest_name(holder) : "";
}

}  // namespace

std::string Claimed::conflict(WorkerId holder, bool share) const {
  for (const auto& [claim, holding] : holdings_)
    if (!(share && holding.share)) return worker_.name() + " is claimed by " + holding.who;
  if (share) return "";
  if (worker_.id() == 0 && actors::is_guest(holder)) return "the job's own program runs on w0";
  const std::string own = program_of_holder(holder);
  size_t count = 0;
  std::string first;
  for (const auto& cell : worker_.actors().all()) {
    const std::string who = program_of_path(cell->path());
    if (who == own) continue;
    if (!count++) first = cell->label() + " of " + (who.empty() ? "the job's own program" : who);
  }
  if (!count) return "";
  return worker_.name() + " has " + (count == 1 ? "an actor" : std::to_string(count) + " actors") +
         " of others: " + first;
}

std::string Claimed::look(WorkerId holder, bool share) const {
  const Lock lock(mutex_);
  return conflict(holder, share);
}

std::string Claimed::hold(const ClaimId& claim, Holding holding) {
  const bool guest = actors::is_guest(claim.holder);
  if (guest && worker_.members().loss(claim.holder)) return worker_.name() + " has lost its holder";
  {
    const Lock lock(mutex_);
    if (std::string why = conflict(claim.holder, holding.share); !why.empty()) return why;
    holdings_.emplace(claim, holding);
  }
  if (guest) worker_.extension<actors::Guests>()->admit(claim.holder);
  return "";
}

// Whoever has a worker for itself has made all that is there, however it hangs together: actors that hold
// each other end, too.
void Claimed::free(const ClaimId& claim, bool gone) {
  const Error why(ErrorKind::disconnected, "its claim has ended");
  bool alone = false, others = false;
  {
    const Lock lock(mutex_);
    const auto node = holdings_.extract(claim);
    alone = !node.empty() && !node.mapped().share;
    for (const auto& [other, holding] : holdings_) others |= other.holder == claim.holder;
  }
  if (!actors::is_guest(claim.holder)) return;
  if (!others) worker_.extension<actors::Guests>()->revoke(claim.holder);
  if (gone) worker_.lose(claim.holder, why);
  if (alone) references_.end_all(why);
}

void Claimed::note_own(uint64_t number, std::set<WorkerId> workers) {
  const Lock lock(mutex_);
  if (workers.empty())
    own_.erase(number);
  else
    own_[number] = std::move(workers);
}

bool Claimed::has(WorkerId worker) const {
  const Lock lock(mutex_);
  return std::ranges::any_of(own_, [&](const auto& claim) { return claim.second.contains(worker); });
}

void Claimed::incoming_call(actors::Invocation& call) {
  if (call.call().target.number != 0 || call.call().method != rref::kSpawn.method) return;
  constexpr size_t kPath = 6;
  const ValueList& args = call.call().args;
  const auto* path = args.size() > kPath ? args[kPath].get_if<std::string>() : nullptr;
  if (!path) return;
  const Lock lock(mutex_);
  for (const auto& [claim, holding] : holdings_)
    if (!holding.share && program_of_path(*path) != program_of_holder(claim.holder))
      throw_error(ErrorKind::overloaded, "[spawn] " + worker_.name() + " is claimed by " + holding.who +
                                             ", for itself: spawn on another worker, or wait until it ends");
}

}  // namespace troupe::internal
