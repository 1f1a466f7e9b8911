#include "troupe/attempt/attempts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "actors/cluster/quiesce.h"
#include "actors/worker/worker.h"
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "core/base/log.h"
#include "troupe/cluster/await_spare.h"

namespace troupe::internal {
namespace {

using std::chrono::seconds;
using troupe::parallel::ReplicaSeat;

bool is_of(Cluster& cluster, const AnyRef& actor) {
  return &actor.handle()->table() == &cluster.here().table();
}

// Every optimizer's, since one that the attempt knows nothing of could not be taken back.
void watch_steps(Cluster& cluster, const std::shared_ptr<Vote>& vote) {
  for (auto* optimizer : optim::DistributedOptimizer::all_listed())
    if (is_of(cluster, optimizer->actors().front())) optimizer->set_watch(vote);
}

constexpr Duration kRest = seconds(30);

size_t places_in(const auto& unit) {
  std::set<size_t> all;
  for (const auto& gone : unit) all.insert(gone.place);
  return all.size();
}

}  // namespace

Attempts::Attempts(Cluster& cluster, Moved moved) : cluster_(cluster), moved_(std::move(moved)) {
  cluster_.let_leave_between_steps();
}

// ---- who is there

std::vector<Attempts::Set*> Attempts::sets() const {
  std::vector<Set*> all;
  for (Set* s : Set::all_listed())
    if (s->can_replace() && is_of(cluster_, s->members().front())) all.push_back(s);
  return all;
}

bool Attempts::lives(const std::string& worker) const {
  const auto all = cluster_.worker().members().all();
  return std::ranges::any_of(all, [&](const auto& m) { return m.name == worker; });
}

std::set<std::string> Attempts::members() const {
  std::set<std::string> workers;
  for (Set* s : sets())
    for (const AnyRef& r : s->members()) workers.insert(r.owner_name());
  return workers;
}

std::set<std::string> Attempts::absent() const {
  std::set<std::string> out;
  const auto leaving = cluster_.leaving();
  for (const std::string& w : members())
    if (!lives(w) || std::ranges::find(leaving, w) != leaving.end()) out.insert(w);
  return out;
}

size_t Attempts::in_use(const std::set<std::string>& absent) const {
  const auto leaving = cluster_.leaving(), workers = cluster_.workers();
  const auto seated = members();
  return static_cast<size_t>(std::ranges::count_if(workers, [&](const std::string& w) {
    const bool leaves = std::ranges::find(leaving, w) != leaving.end();
    return !absent.contains(w) && (!leaves || seated.contains(w));
  }));
}

bool Attempts::may_grow() const {
  const auto all = sets();
  const bool short_of = std::ranges::any_of(all, [&](Set* s) {
    const auto at = missing_.find(s);
    return at != missing_.end() && !at->second.empty() &&
           cluster_.spares().size() + free_.size() + idle_.size() >= places_in(at->second.back());
  });
  const ElasticJob& job = cluster_.elastic_job();
  return short_of || (!cluster_.spares().empty() && job.start > 0 &&
                      std::ssize(cluster_.workers()) < job.most && job.most > job.start);
}

// ---- an attempt

void Attempts::run(const std::function<void()>& step) {
  if (running_) throw_invalid("[attempt] one within another: a step of a job is one attempt");
  running_ = true;
  const std::shared_ptr<void> ends(nullptr, [this](void*) { running_ = false, pools_.reset(); });
  if (sets().empty()) return step();
  machine_.emplace();
  for (Action next = machine_->on(begin());;) switch (next) {
      case Action::run:
        next = machine_->on(call(step));
        break;
      case Action::keep:
        next = machine_->on(perform([this] { return keep(), Event::done; }));
        break;
      case Action::rest:
        next = machine_->on(rest());
        break;
      case Action::undo:
        next = machine_->on(perform([this] { return undo(); }));
        break;
      case Action::form:
        next = machine_->on(perform([this] { return form(); }));
        break;
      case Action::finish:
        calls_ = cluster_.worker().pending_calls().last_id();
        return;
      case Action::give_up:
      case Action::go_on:
        fresh_ = false;
        throw *why_;
    }
}

Attempts::Event Attempts::begin() {
  for (const std::string& w : cluster_.leaving())
    if (!members().contains(w)) cluster_.let_go(w);
  const auto all = sets();
  std::erase_if(missing_, [&](const auto& m) { return std::ranges::find(all, m.first) == all.end(); });
  const bool known = own_.size() == all.size() && std::ranges::all_of(all, [&](Set* s) {
                       return own_.contains(s) && own_[s].size() == s->members().size();
                     });
  fresh_ = fresh_ && known && calls_ == cluster_.worker().pending_calls().last_id();
  if (!absent().empty() || may_grow() || std::cmp_less(in_use(absent()), cluster_.elastic_job().least)) {
    if (!known) own_.clear();
    return Event::missing;
  }
  return fresh_ ? Event::begin : Event::stale;
}

void Attempts::keep() {
  std::map<Set*, Future<std::vector<StateDict>>> asked;
  for (Set* s : sets()) asked[s] = s->keep_points(number_);
  for (auto& [set, answer] : asked) own_[set] = answer.get();
  fresh_ = true;
}

Attempts::Event Attempts::call(const std::function<void()>& step) {
  driver_ = state_of_driver();
  fresh_ = undone_ = false;
  std::map<Set*, std::vector<StateDict>> next;
  std::set<std::string> labels;
  for (Set* s : sets())
    for (const AnyRef& r : s->members()) labels.insert(label_of(r));
  const auto count = [&] {
    const Vote::Steps steps = vote_->count();
    if (steps.lost) (void)machine_->on(Event::lost);
    if (steps.made == 0) return;
    (void)machine_->on(Event::committed);
    own_ = next;
    ++number_;
  };
  const auto prepare = [&] {
    count();  // of an optimizer before this one
    std::map<Set*, Future<std::vector<StateDict>>> asked;
    for (Set* s : sets()) asked[s] = s->keep_points(number_ + 1);
    for (auto& [set, answer] : asked) next[set] = answer.get();
    (void)machine_->on(Event::prepared);
  };
  vote_ = std::make_shared<Vote>(prepare, std::move(labels));
  const int64_t before = number_;
  try {
    const std::shared_ptr<void> out(nullptr, [this](void*) { watch_steps(cluster_, nullptr); });
    watch_steps(cluster_, vote_);
    step();
    count();
  } catch (const Error& e) {
    count();
    if (e.kind() != ErrorKind::disconnected) throw;
    why_ = e;
    if (number_ == before) return Event::lost;
    why_ = Error(e.kind(),
                 "[attempt] a worker was lost behind the step of an optimizer, where the function of "
                 "attempt() cannot run again: leave calls behind the step to another attempt. " +
                     e.message(),
                 e.trail(), e.worker());
    return Event::refused;
  }
  fresh_ = number_ > before;
  return Event::returned;
}

Attempts::Event Attempts::perform(const std::function<Event()>& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::cancelled) throw;
    why_ = e;
    const bool lost = !absent().empty() || newcomer_lost();
    return e.kind() == ErrorKind::disconnected && lost ? Event::lost : Event::refused;
  }
}

bool Attempts::newcomer_lost() const {
  const auto is_lost = [&](const std::string& w) { return !lives(w); };
  return std::ranges::any_of(free_, is_lost) ||
         std::ranges::any_of(in_place_, [&](const auto& p) { return is_lost(p.second); });
}

Attempts::Event Attempts::refuse(const std::string& why) {
  why_ = why_
             ? Error(why_->kind(), "[attempt] " + why + ": " + why_->message(), why_->trail(), why_->worker())
             : Error(ErrorKind::failed, "[attempt] " + why);
  return Event::refused;
}

// ---- after a loss

// Each worker learns from the question who is lost.
Attempts::Event Attempts::rest() {
  auto& worker = cluster_.worker();
  pools_.emplace(cluster_, worker.clock().now());
  const auto problem = actors::quiesce(worker, worker.clock().now() + kRest);
  if (problem && problem->kind() == ErrorKind::cancelled) throw *problem;
  if (problem && problem->kind() != ErrorKind::disconnected) {
    why_ = problem;
    return Event::refused;
  }
  if (machine_->redone() > 0 && absent().empty() && why_)
    return refuse("no worker with a replica is lost, and the step failed all the same");
  return Event::done;
}

std::string Attempts::what_cannot_be_undone() {
  std::set<std::string> known;
  for (Set* s : sets()) {
    for (const AnyRef& r : s->members()) known.insert(label_of(r));
    for (const AnyRef& r : s->helpers()) known.insert(label_of(r));
  }
  for (const PoolCore* p : PausedPools::of(cluster_))  // nobody relies on their state
    for (const AnyRef& r : p->members()) known.insert(label_of(r));
  auto& worker = cluster_.worker();
  for (const std::string& what : actors::alive_everywhere(worker, worker.clock().now() + kRest)) {
    if (what.find(" contexts on ") != std::string::npos)
      return "an autograd::Context from before the step goes on (" + what +
             "): a context ends within its attempt";
    if (what.front() >= '0' && what.front() <= '9') continue;
    if (!known.contains(what))
      return "the job has " + what +
             ", which is no replica of a DataParallel or Pipelines with Shard::none or spare pieces";
  }
  return "";
}

Attempts::Event Attempts::undo() {
  if (const std::string what = what_cannot_be_undone(); !what.empty())
    return refuse("the step cannot be taken back, since " + what);
  if (undone_) return Event::done;
  load_driver(*driver_);
  std::vector<Future<void>> asked;
  for (Set* s : sets()) {
    std::vector<size_t> ranks;
    for (size_t r = 0; r < s->members().size(); ++r)
      if (lives(s->members()[r].owner_name())) ranks.push_back(r);
    asked.push_back(s->undo(number_, ranks));
  }
  for (const auto& a : asked) a.get();
  undone_ = true;
  return Event::done;
}

// A set that divides state stays as many as it is.
bool Attempts::has_pieces(const std::string& worker) const {
  return std::ranges::any_of(sets(), [&](Set* s) {
    return s->stays_as_many() &&
           std::ranges::any_of(s->members(), [&](const AnyRef& r) { return r.owner_name() == worker; });
  });
}

// False: there are too few.
bool Attempts::choose(const std::set<std::string>& absent) {
  const auto is_lost = [&](const std::string& w) { return !lives(w); };
  std::erase_if(in_place_, [&](const auto& p) { return is_lost(p.second); });
  std::erase_if(free_, is_lost);
  const auto leaving = cluster_.leaving();
  std::erase_if(idle_,
                [&](const auto& w) { return is_lost(w) || std::ranges::find(leaving, w) != leaving.end(); });
  const auto take = [&] {
    const std::string spare = cluster_.spares().front();
    cluster_.use_spare(spare);
    return spare;
  };
  const auto few = [&] { return std::cmp_less(in_use(absent), cluster_.elastic_job().least); };
  const auto seated = members();  // of a forming that a loss has ended
  const auto take_from = [&](auto& from, const std::string& w) {
    const auto at = std::ranges::find_if(from, [&](const auto& other) { return !seated.contains(other); });
    if (at == from.end()) return false;
    in_place_[w] = *at;
    from.erase(at);
    return true;
  };
  for (const std::string& w : absent) {
    if (in_place_.contains(w) || take_from(free_, w) || take_from(idle_, w)) continue;
    if (cluster_.spares().empty() && ((few() && !lives(w)) || has_pieces(w))) {
      log::warning(fmt::format("[job] {} {}, and {} of at least {} workers are there: waiting for one", w,
                               lives(w) ? "leaves" : "is lost", in_use(absent),
                               cluster_.elastic_job().least));
      if (lives(w)) cluster_.let_go(w);  // whoever takes its place is started when it has gone
      (void)await_spare(cluster_);
    }
    if (!cluster_.spares().empty()) in_place_[w] = take();
  }
  const bool waits = std::ranges::none_of(absent, [&](const auto& w) { return lives(w); });
  while ((few() && waits && await_spare(cluster_)) || (!cluster_.spares().empty() && may_grow()))
    free_.push_back(take());
  return !waits || !few();
}

// Before the first step nobody has asked the members; who leaves can be asked until it is let go.
void Attempts::ask_own() {
  for (Set* s : sets()) {
    if (own_.contains(s)) continue;
    std::vector<StateDict> all;
    for (size_t r = 0; r < s->members().size(); ++r) all.push_back(s->own_state(r));
    own_[s] = std::move(all);
  }
}

// A seat for each that stays, and for who comes in the place of others; who has none is missing from now on.
Attempts::Seats Attempts::seats(Set& set, const std::set<std::string>& absent) {
  Seats all;
  std::set<size_t> going;
  for (size_t r = 0; r < set.members().size(); ++r) {
    const AnyRef& replica = set.members()[r];
    const std::string worker = replica.owner_name(), path = replica.handle()->path();
    if (!absent.contains(worker)) {
      all.push_back({.stays = r, .worker = {}, .path = {}, .own = {}});
      continue;
    }
    const auto at = in_place_.find(worker);
    const std::string by = at == in_place_.end() ? "" : at->second;
    told_.push_back({path, by});
    if (by.empty()) going.insert(set.unit_of(r));
    all.push_back({.stays = {}, .worker = by, .path = path, .own = own_[&set].at(r)});
  }
  std::vector<std::string> available = free_;
  available.insert(available.end(), idle_.begin(), idle_.end());
  std::erase_if(available, [&](const std::string& w) {
    return std::ranges::any_of(set.members(), [&](const AnyRef& r) { return r.owner_name() == w; });
  });
  drop(set, all, going, available);
  seat_free(set, all, available);
  return all;
}

// Members of these units go, also those that live, where there are not enough others for their empty seats.
// The workers of one that goes are there for the next; the one that has lost most goes first.
void Attempts::drop(Set& set, Seats& seats, const std::set<size_t>& units,
                    std::vector<std::string>& available) {
  std::vector<size_t> unit_of, place_of;
  for (size_t r = 0; r < seats.size(); ++r)
    unit_of.push_back(set.unit_of(r)), place_of.push_back(set.place_of(r));
  const auto empty_in = [&](size_t unit) {
    std::map<size_t, std::vector<ReplicaSeat*>> empty;  // by place
    for (size_t i = 0; i < seats.size(); ++i)
      if (unit_of[i] == unit && !seats[i].stays && seats[i].worker.empty())
        empty[place_of[i]].push_back(&seats[i]);
    return empty;
  };
  std::vector<size_t> order(units.begin(), units.end());
  std::ranges::stable_sort(order, std::greater(), [&](size_t unit) { return empty_in(unit).size(); });
  for (const size_t unit : order) {
    if (const auto empty = empty_in(unit); empty.size() <= available.size()) {
      for (const auto& [place, of] : empty) {
        for (ReplicaSeat* seat : of) seat->worker = available.front();
        available.erase(available.begin());
      }
      continue;
    }
    MissingUnit gone;
    for (size_t i = 0; i < seats.size();) {
      if (unit_of[i] != unit) {
        ++i;
        continue;
      }
      ReplicaSeat& seat = seats[i];
      if (seat.stays) {
        const AnyRef& member = set.members()[*seat.stays];
        seat.worker = member.owner_name(), seat.path = member.handle()->path();
        seat.own = own_[&set].at(*seat.stays);
      }
      if (!seat.worker.empty() && std::ranges::find(available, seat.worker) == available.end())
        available.push_back(seat.worker);
      told_.push_back({seat.path, ""});
      gone.push_back({i, place_of[i], seat.path, std::move(seat.own), number_});
      const auto at = static_cast<std::ptrdiff_t>(i);
      seats.erase(seats.begin() + at);
      unit_of.erase(unit_of.begin() + at), place_of.erase(place_of.begin() + at);
    }
    missing_[&set].push_back(std::move(gone));
  }
}

// Whoever came for nobody takes the place of one that has been missing, or is one more; or it came for a
// worker without a replica.
void Attempts::seat_free(Set& set, Seats& seats, const std::vector<std::string>& available) {
  auto& missing = missing_[&set];
  const ElasticJob& job = cluster_.elastic_job();
  auto next = available.begin();
  const auto left = [&] { return static_cast<size_t>(available.end() - next); };
  const auto seat = [&](const std::string& on, size_t at, std::string path, StateDict own) {
    seats.insert(seats.begin() + static_cast<std::ptrdiff_t>(std::min(at, seats.size())),
                 {.stays = {}, .worker = on, .path = std::move(path), .own = std::move(own)});
  };
  // The last to go are the first to be back: ranks are as before.
  for (; !missing.empty() && left() >= places_in(missing.back()); missing.pop_back())
    for (std::map<size_t, std::string> on; !missing.back().empty();) {
      Missing one = std::move(missing.back().back());
      missing.back().pop_back();
      if (!on.contains(one.place)) on[one.place] = *next++;
      seat(on[one.place], one.rank, one.path, one.number == number_ ? std::move(one.own) : StateDict());
    }
  if (missing.empty() && job.most > job.start && set.can_grow())
    while (left() > 0 && std::ranges::find(free_, *next) != free_.end()) seat(*next++, seats.size(), "", {});
}

void Attempts::form_set(Set& set, const std::set<std::string>& absent) {
  const auto missing = missing_[&set];
  const auto all = seats(set, absent);
  other_number_ |= all.size() != set.members().size();
  const bool same = all.size() == set.members().size() &&
                    std::ranges::all_of(all, [](const ReplicaSeat& seat) { return bool(seat.stays); });
  if (same) return;
  try {
    set.reform(all);
  } catch (...) {
    missing_[&set] = missing;
    throw;
  }
  std::vector<StateDict> own;
  for (const ReplicaSeat& seat : all) own.push_back(seat.stays ? own_[&set].at(*seat.stays) : seat.own);
  own_[&set] = std::move(own);
  for (size_t r = 0; r < all.size(); ++r)
    if (!all[r].stays) told_.push_back({set.members()[r].handle()->path(), all[r].worker});
  for (const AnyRef& r : set.helpers()) told_.push_back({r.handle()->path(), r.owner_name()});
}

Attempts::Event Attempts::form() {
  const auto gone = absent();
  for (Set* s : sets())
    if (std::ranges::all_of(s->members(), [&](const AnyRef& r) { return gone.contains(r.owner_name()); }))
      return refuse("all workers with replicas are lost");
  ask_own();
  if (!choose(gone))
    return refuse(fmt::format(
        "{} of at least {} workers are there, and nobody has come within {:g} s (--wait)", in_use(gone),
        cluster_.elastic_job().least, std::chrono::duration<double>(cluster_.elastic_job().wait).count()));
  const auto before = members();
  for (Set* s : sets()) form_set(*s, gone);
  keep();
  const auto seated = members();
  idle_.insert(free_.begin(), free_.end());
  for (const auto& [w, by] : in_place_) idle_.insert(by);
  std::erase_if(in_place_, [&](const auto& p) { return !seated.contains(p.second); });
  for (const std::string& w : before)
    if (!seated.contains(w) && !gone.contains(w)) {
      idle_.insert(w);
      log::warning(
          fmt::format("[job] {} waits: others of its replica are lost, and nobody is in their place", w));
    }
  for (const std::string& w : seated) idle_.erase(w);
  for (const std::string& w : gone) tell(w);
  if (!free_.empty())
    log::warning(fmt::format("[job] {} joined: {} workers go on", fmt::join(free_, ", "), in_use({})));
  moved_(told_, other_number_);
  told_.clear(), in_place_.clear(), free_.clear();
  other_number_ = false;
  pools_.reset();
  const bool few = std::cmp_less(in_use(absent()), cluster_.elastic_job().least);
  return few ? form() : Event::done;  // whoever left has made room for another one
}

void Attempts::tell(const std::string& gone) {
  const auto at = in_place_.find(gone);
  log::warning(fmt::format("[job] {} {}: {}{}", gone, lives(gone) ? "leaves" : "is lost",
                           at == in_place_.end() ? fmt::format("{} workers go on", in_use({gone}))
                                                 : at->second + " takes its place",
                           machine_->redone() > 0 ? ", and the step is made again" : ""));
  if (lives(gone)) cluster_.let_go(gone);
}

}  // namespace troupe::internal
