#include "troupe/pool/pool_core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "actors/call_scope.h"
#include "actors/worker/worker.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "rref/ref_table.h"
#include "troupe/launch/stop.h"

namespace troupe::internal {
namespace {

using Kind = Supervision::Action::Kind;
constexpr Duration kLook = std::chrono::milliseconds(100);

PoolOptions checked(Cluster& cluster, PoolOptions options, const std::string& type) {
  if (options.workers.empty()) options.workers = cluster.workers();
  const auto& members = cluster.worker().members();
  for (const std::string& w : options.workers) (void)members.id_of(w);
  if (options.workers.size() > 1) std::erase(options.workers, cluster.here().name());
  if (options.size < 0 || options.at_once < 1 || options.restart.most < 0)
    throw_invalid(fmt::format(
        "[pool] {}: size {}, at_once {}, restart.most {}; expected 0 or more, 1 or more, 0 or more", type,
        options.size, options.at_once, options.restart.most));
  return options;
}

}  // namespace

PoolCore::PoolCore(Cluster& cluster, PoolOptions options, std::string type, Make make)
    : cluster_(cluster),
      options_(checked(cluster, std::move(options), type)),
      type_(std::move(type)),
      make_(std::move(make)),
      places_(options_.size > 0 ? static_cast<size_t>(options_.size) : options_.workers.size()),
      supervision_(places_, options_.restart, options_.at_once),
      members_(places_) {}

std::shared_ptr<PoolCore> PoolCore::create(Cluster& cluster, PoolOptions options, std::string type,
                                           Make make) {
  const std::shared_ptr<PoolCore> core(
      new PoolCore(cluster, std::move(options), std::move(type), std::move(make)));
  core->begin();
  return core;
}

PoolCore::~PoolCore() { end(); }

// The first members are made here, so that their paths and random numbers are those of the program's order.
void PoolCore::begin() {
  cluster_.worker().on_lost().add(weak_from_this(), [weak = weak_from_this()](WorkerId id, const Error& why) {
    if (const auto core = weak.lock()) core->worker_lost(id, why);
  });
  for (size_t m = 0; m < places_; ++m) make(m, 0);
  thread_ = start_thread("pool", [this] { run(); });
}

void PoolCore::end() {
  std::map<Supervision::Task, Work> left;
  std::vector<Member> members;
  {
    const Lock lock(mutex_);
    if (std::exchange(ended_, true)) return;
    left.swap(works_);
    members.swap(members_);
    members_.resize(places_);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const auto& [task, work] : left)
    work.fail(Error(ErrorKind::cancelled, "[pool] the pool of " + type_ + " has ended"));
}

// ---- tasks

void PoolCore::add(Work work, std::optional<size_t> member, int again) {
  Actions actions;
  std::optional<Error> refused;
  {
    const Lock lock(mutex_);
    opened_ = true;
    if (ended_) {
      refused = Error(ErrorKind::cancelled, "[pool] the pool of " + type_ + " has ended");
    } else if (supervision_.given_up() || (member && supervision_.gone(*member))) {
      refused = supervision_.given_up() ? end_of_pool() : lost_in_task(work);
    } else {
      works_[++last_task_] = work;
      actions = supervision_.add(last_task_, member, again);
    }
  }
  changed_.notify_all();
  if (refused) return work.fail(*refused);
  perform(std::move(actions));
}

bool PoolCore::ended(Supervision::Task task, size_t member, int64_t incarnation, const Error* error) {
  WorkerId id = kNoWorker;
  {
    const Lock lock(mutex_);
    if (supervision_.incarnation(member) == incarnation) id = members_[member].id;
  }
  if (error && id != kNoWorker)
    if (const auto loss = cluster_.worker().members().loss(id)) worker_lost(id, *loss);
  std::optional<Actions> actions;
  {
    const Lock lock(mutex_);
    actions = supervision_.answered(task, member, incarnation);
    if (actions) works_.erase(task);
  }
  if (!actions) return true;
  perform(std::move(*actions));
  return false;
}

void PoolCore::perform(Actions actions) {
  for (const auto& action : actions) {
    std::optional<Work> work;
    std::optional<Error> why;
    AnyRef actor;
    {
      const Lock lock(mutex_);
      if (action.kind == Kind::start) jobs_.push_back({action.member, action.incarnation, false});
      if (action.kind == Kind::end) actor = std::exchange(members_[action.member].actor, {});
      if (action.kind == Kind::send || action.kind == Kind::fail) {
        const auto at = works_.find(action.task);
        if (at == works_.end()) continue;
        work = at->second;
        if (action.kind == Kind::fail) {
          why = supervision_.given_up() ? end_of_pool() : lost_in_task(*work);
          works_.erase(at);
        } else if (supervision_.incarnation(action.member) == action.incarnation) {
          actor = members_[action.member].actor;
        }
      }
    }
    if (why) work->fail(*why);
    if (action.kind == Kind::send && actor)
      work->to(actor, [weak = weak_from_this(), action](const Error* error) {
        const auto core = weak.lock();
        return core && core->ended(action.task, action.member, action.incarnation, error);
      });
  }
  changed_.notify_all();
}

// ---- members

void PoolCore::worker_lost(WorkerId id, const Error& why) {
  std::vector<Supervision::Seat> seats;
  {
    const Lock lock(mutex_);
    for (size_t m = 0; m < members_.size(); ++m)
      if (members_[m].id == id) seats.push_back({m, supervision_.incarnation(m)});
  }
  seats_lost(seats, why);
}

void PoolCore::lost(size_t member, int64_t incarnation, const Error& why) {
  seats_lost({{member, incarnation}}, why);
}

void PoolCore::seats_lost(const std::vector<Supervision::Seat>& seats, const Error& why) {
  Actions actions;
  std::vector<std::pair<size_t, std::string>> gone;  // and their workers
  std::function<void(size_t, const std::string&)> told;
  {
    const Lock lock(mutex_);
    if (ended_) return;
    for (const auto& [member, incarnation] : seats) {
      if (supervision_.incarnation(member) != incarnation || supervision_.gone(member)) continue;
      Member& m = members_[member];
      gone.emplace_back(member, m.worker);
      m.id = kNoWorker;
      lost_member_ = fmt::format("{}[{}] on {}", type_, member, m.worker);
    }
    if (gone.empty()) return;
    why_ = why;
    actions = supervision_.lost(seats, cluster_.worker().clock().now());
    for (const auto& [member, worker] : gone)
      if (supervision_.gone(member)) members_[member].actor = {};
    told = on_lost_;
  }
  const bool again = std::ranges::any_of(actions, [&](const auto& a) { return a.kind == Kind::start; });
  std::vector<std::string> names;
  for (const auto& [member, worker] : gone) names.push_back(fmt::format("{}[{}]", type_, member));
  log::warning(fmt::format("[pool] {} on {} lost ({}){}", fmt::join(names, ", "),
                           gone.front().second + (gone.size() == 1 ? " is" : " are"), why.message(),
                           again ? ": started again" : ""));
  perform(std::move(actions));
  for (const auto& [member, worker] : gone)
    if (told) told(member, worker);
}

Error PoolCore::end_of_pool() const {
  const auto& policy = options_.restart;
  const std::string how =
      policy.restart == Restart::none
          ? "has no member left (Restart::none)"
          : fmt::format("was given up: more than {} losses within {:g} s (PoolOptions::restart)", policy.most,
                        std::chrono::duration<double>(policy.within).count());
  return {
      why_->kind(),
      fmt::format("[pool] the pool of {} {}; the last was {}: {}", type_, how, lost_member_, why_->message()),
      why_->trail(), why_->worker()};
}

Error PoolCore::lost_in_task(const Work& work) const {
  return {
      ErrorKind::disconnected,
      fmt::format("[pool] {}: {} was lost before it answered, and the call may have run: where twice does "
                  "no harm, mark it, pool.again<&{}>(). {}",
                  work.label, lost_member_, work.label, why_->message()),
      why_->trail(), why_->worker()};
}

// The worker that has the fewest of its members.
std::optional<std::string> PoolCore::place() {
  std::map<std::string, size_t> load;
  const auto living = cluster_.workers();
  {
    const Lock lock(mutex_);
    for (size_t m = 0; m < members_.size(); ++m)
      if (members_[m].id != kNoWorker) ++load[members_[m].worker];
  }
  const auto best = [&](const std::vector<std::string>& all) {
    std::optional<std::string> found;
    size_t least = std::numeric_limits<size_t>::max();
    for (const std::string& w : all)
      if (std::ranges::find(living, w) != living.end() && load[w] < least) found = w, least = load[w];
    return found;
  };
  if (auto own = best(options_.workers)) return own;
  auto others = living;
  std::erase(others, cluster_.here().name());
  return best(others);
}

// No worker is left but the driver's: an elastic job gets another one.
std::optional<std::string> PoolCore::newcomer() {
  const auto& clock = cluster_.worker().clock();
  const TimePoint until = clock.now() + cluster_.elastic_job().wait;
  while (cluster_.elastic_job().start > 0 && clock.now() < until && !stop_asked()) {
    const Future<void> next = cluster_.worker().members().next_listed();
    if (const auto spares = cluster_.spares(); !spares.empty()) {
      cluster_.use_spare(spares.front());
      return spares.front();
    }
    (void)next.wait_for(kLook);
    const Lock lock(mutex_);
    if (ended_) return std::nullopt;
  }
  return std::nullopt;
}

void PoolCore::make(size_t member, int64_t incarnation) {
  auto where = place();
  if (!where) where = newcomer();
  if (!where)
    return lost(member, incarnation,
                Error(ErrorKind::disconnected, "no worker is left for it but the driver's"));
  std::string path;
  {
    const Lock lock(mutex_);
    path = members_[member].path;
  }
  auto& worker = cluster_.worker();
  AnyRef actor;
  try {
    const auto as =
        path.empty() ? nullptr : std::make_unique<rref::RefTable::SpawnAs>(cluster_.here().table(), path);
    actor = make_(*where);
    worker.watch(actor.owner());
  } catch (...) {
    const Error why = current_error();
    if (why.kind() != ErrorKind::disconnected && path.empty()) throw why;
    return lost(member, incarnation, why);
  }
  {
    const Lock lock(mutex_);
    if (ended_ || supervision_.incarnation(member) != incarnation) return;
    members_[member] = {actor, *where, actor.handle()->path(), actor.owner()};
  }
  if (const auto loss = worker.members().loss(actor.owner())) return lost(member, incarnation, *loss);
  actor.ready().on_ready([weak = weak_from_this(), member, incarnation](const Result<void>& made) {
    const auto core = weak.lock();
    if (!core) return;
    if (!made.ok()) return core->lost(member, incarnation, made.error());
    {
      const Lock lock(core->mutex_);
      core->jobs_.push_back({member, incarnation, true});
    }
    core->changed_.notify_all();
  });
}

void PoolCore::introduce(size_t member, int64_t incarnation) {
  std::function<void(size_t, const AnyRef&)> f;
  AnyRef actor;
  {
    const Lock lock(mutex_);
    if (supervision_.incarnation(member) != incarnation) return;
    f = on_start_;
    actor = members_[member].actor;
  }
  try {
    if (f && actor) f(member, actor);
  } catch (...) {
    return lost(member, incarnation, current_error());
  }
  Actions actions;
  {
    const Lock lock(mutex_);
    actions = supervision_.started(member, incarnation);
  }
  perform(std::move(actions));
}

// Members are made, and on_start runs, on this thread. It begins with the first task, so that a program has
// said by then what is to run.
void PoolCore::run() {
  for (;;) {
    Job job;
    {
      Lock lock(mutex_);
      changed_.wait(lock.native(),
                    [&]() TROUPE_REQUIRES(mutex_) { return ended_ || (opened_ && !jobs_.empty()); });
      if (ended_) return;
      job = jobs_.front();
      jobs_.pop_front();
    }
    if (job.made)
      introduce(job.member, job.incarnation);
    else
      make(job.member, job.incarnation);
  }
}

// ---- what users ask and say

void PoolCore::on_start(std::function<void(size_t, const AnyRef&)> f) {
  const Lock lock(mutex_);
  on_start_ = std::move(f);
}

void PoolCore::on_lost(std::function<void(size_t, const std::string&)> f) {
  const Lock lock(mutex_);
  on_lost_ = std::move(f);
}

AnyRef PoolCore::member(size_t i) const {
  if (i >= places_) throw_invalid(fmt::format("[pool] member {} of {}: they count from 0", i, places_));
  const Lock lock(mutex_);
  return members_[i].actor;
}

int64_t PoolCore::incarnation(size_t i) const {
  if (i >= places_) throw_invalid(fmt::format("[pool] member {} of {}: they count from 0", i, places_));
  const Lock lock(mutex_);
  return supervision_.incarnation(i);
}

bool PoolCore::pause(TimePoint until) {
  const auto& clock = cluster_.worker().clock();
  Lock lock(mutex_);
  supervision_.pause();
  while (opened_ && !ended_ && !supervision_.given_up() && !supervision_.settled() && clock.now() < until)
    changed_.wait_for(lock.native(), kLook);
  return !opened_ || supervision_.given_up() || supervision_.settled();
}

void PoolCore::resume() {
  Actions actions;
  {
    const Lock lock(mutex_);
    actions = supervision_.resume();
  }
  perform(std::move(actions));
}

std::map<std::string, std::string> PoolCore::where() const {
  std::map<std::string, std::string> all;
  const Lock lock(mutex_);
  for (const Member& m : members_)
    if (!m.path.empty()) all[m.path] = m.id == kNoWorker ? "" : m.worker;
  return all;
}

std::vector<AnyRef> PoolCore::members() const {
  std::vector<AnyRef> all;
  const Lock lock(mutex_);
  for (const Member& m : members_)
    if (m.actor) all.push_back(m.actor);
  return all;
}

}  // namespace troupe::internal
