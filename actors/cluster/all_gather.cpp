#include "actors/cluster/all_gather.h"

#include <algorithm>

#include "actors/worker/service.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {
namespace {

/// Member to leader: it has come to a gathering. All values, once all have come.
constexpr Service<ValueList(std::string name, std::vector<WorkerId> members, uint64_t ticket, Value value)>
    kArrive{"gather.arrive"};
/// Member to leader: it has waited long enough. The answer names the members that are missing.
constexpr Service<std::vector<WorkerId>(std::string name, std::vector<WorkerId> members, uint64_t ticket)>
    kWithdraw{"gather.withdraw"};

using Key = std::pair<std::string, std::vector<WorkerId>>;

// The gatherings that one worker leads. Thread-safe.
class Leader {
 public:
  void arrive(const Ref<Invocation>& call, const std::string& name, const std::vector<WorkerId>& members,
              uint64_t number, Value value) {
    const WorkerId from = call->from();
    for (const WorkerId m : members) {
      call->worker().watch(m);
      if (auto why = call->worker().members().loss(m)) throw *why;
    }
    const AllGather::Ticket ticket = ticket_of(from, number);
    std::vector<Ref<Invocation>> ready;
    ValueList values;
    {
      Lock lock(mutex_);
      for (const WorkerId m : members)  // lost() has been here, or will be
        if (auto why = call->worker().members().loss(m)) throw *why;
      AllGather& gathering = at({name, members});
      auto round = gathering.arrive(from, ticket, std::move(value));
      waiting_[ticket] = call;
      if (!round) return;
      values = std::move(round->values);
      for (const auto t : round->tickets) ready.push_back(std::move(waiting_.extract(t).mapped()));
      forget_if_empty({name, members});
    }
    for (const auto& c : ready) kArrive.answer(*c, values);
  }

  std::vector<WorkerId> withdraw(WorkerId from, const std::string& name, const std::vector<WorkerId>& members,
                                 uint64_t number) {
    const AllGather::Ticket ticket = ticket_of(from, number);
    Ref<Invocation> late;  // let go after the lock
    std::vector<WorkerId> missing;
    {
      Lock lock(mutex_);
      missing = at({name, members}).withdraw(from, ticket);
      if (auto node = waiting_.extract(ticket); !node.empty()) late = std::move(node.mapped());
      forget_if_empty({name, members});
    }
    return missing;
  }

  void lost(WorkerId worker, const Error& why) {
    std::vector<Ref<Invocation>> in_vain;
    {
      Lock lock(mutex_);
      for (auto next = gatherings_.begin(); next != gatherings_.end();) {
        const auto at = next++;
        for (const auto ticket : at->second.lost(worker))
          if (auto node = waiting_.extract(ticket); !node.empty())
            in_vain.push_back(std::move(node.mapped()));
        if (at->second.empty()) gatherings_.erase(at);
      }
    }
    for (const auto& c : in_vain) c->fail(why);
  }

  void stop() {
    std::map<AllGather::Ticket, Ref<Invocation>> waiting;  // let go after the lock
    Lock lock(mutex_);
    waiting.swap(waiting_);
    gatherings_.clear();
  }

 private:
  static AllGather::Ticket ticket_of(WorkerId from, uint64_t number) {
    return (uint64_t{from} << 40) | number;
  }
  AllGather& at(const Key& key) TROUPE_REQUIRES(mutex_) {
    return gatherings_.try_emplace(key, std::set<WorkerId>(key.second.begin(), key.second.end()))
        .first->second;
  }
  void forget_if_empty(const Key& key) TROUPE_REQUIRES(mutex_) {
    if (const auto found = gatherings_.find(key); found != gatherings_.end() && found->second.empty())
      gatherings_.erase(found);
  }
  Mutex mutex_;
  std::map<Key, AllGather> gatherings_ TROUPE_GUARDED_BY(mutex_);
  std::map<AllGather::Ticket, Ref<Invocation>> waiting_ TROUPE_GUARDED_BY(mutex_);
};

// Which actor of a worker takes part in which gathering. Thread-safe.
class Participants {
 public:
  void add(const Key& key, const std::shared_ptr<ActorCell>& owner) {
    Lock lock(mutex_);
    auto& known = by_key_[key];
    if (const auto other = known.lock(); other && other != owner)
      throw_invalid("[gather] \"" + key.first + "\": " + other->label() + " and " + owner->label() +
                    " are on one worker, and each member of a group has a worker of its own: spawn them on "
                    "different workers, or give their groups different names");
    known = owner;
    std::erase_if(by_key_, [](const auto& entry) { return entry.second.expired(); });
  }

 private:
  Mutex mutex_;
  std::map<Key, std::weak_ptr<ActorCell>> by_key_ TROUPE_GUARDED_BY(mutex_);
};

struct Gatherings final : Extension {
  void worker_lost(WorkerId id, const Error& why) override { leader->lost(id, why); }
  void stop() override { leader->stop(); }
  const std::shared_ptr<Leader> leader = std::make_shared<Leader>();
  Participants participants;
};

}  // namespace

AllGather::AllGather(std::set<WorkerId> members) {
  for (const WorkerId m : members) waiting_[m];
}

std::optional<AllGather::Round> AllGather::arrive(WorkerId worker, Ticket ticket, Value value) {
  const auto at = waiting_.find(worker);
  if (at == waiting_.end())
    throw_invalid("[gather] w" + std::to_string(worker) + " is no member of this gathering");
  at->second.push_back({ticket, std::move(value)});
  for (const auto& [member, arrivals] : waiting_)
    if (arrivals.empty()) return std::nullopt;
  Round round;
  for (auto& [member, arrivals] : waiting_) {
    round.tickets.push_back(arrivals.front().ticket);
    round.values.push_back(std::move(arrivals.front().value));
    arrivals.pop_front();
  }
  return round;
}

std::vector<WorkerId> AllGather::withdraw(WorkerId worker, Ticket ticket) {
  const auto at = waiting_.find(worker);
  if (at == waiting_.end()) return {};
  auto& arrivals = at->second;
  const auto found =
      std::find_if(arrivals.begin(), arrivals.end(), [&](const Arrival& a) { return a.ticket == ticket; });
  if (found == arrivals.end()) return {};
  const auto round = static_cast<size_t>(found - arrivals.begin());
  std::vector<WorkerId> missing;
  for (const auto& [member, others] : waiting_)
    if (others.size() <= round) missing.push_back(member);
  arrivals.erase(found);
  return missing;
}

std::vector<AllGather::Ticket> AllGather::lost(WorkerId worker) {
  std::vector<Ticket> all;
  if (!waiting_.contains(worker)) return all;
  for (auto& [member, arrivals] : waiting_) {
    for (const Arrival& a : arrivals) all.push_back(a.ticket);
    arrivals.clear();
  }
  return all;
}

bool AllGather::empty() const {
  return std::all_of(waiting_.begin(), waiting_.end(), [](const auto& m) { return m.second.empty(); });
}

void install_gathering(Worker& worker) {
  auto all = std::make_unique<Gatherings>();
  kArrive.serve_later(worker, [leader = all->leader](const auto& call, auto&&... arrival) {
    leader->arrive(call, std::move(arrival)...);
  });
  kWithdraw.serve(worker, [leader = all->leader](Invocation& call, auto&&... arrival) {
    return leader->withdraw(call.from(), std::move(arrival)...);
  });
  worker.add_extension(std::move(all));
}

void take_part(Worker& worker, const std::string& name, const std::set<WorkerId>& members,
               const std::shared_ptr<ActorCell>& owner) {
  if (auto* all = worker.extension<Gatherings>())
    all->participants.add({name, {members.begin(), members.end()}}, owner);
}

Future<ValueList> gather(Worker& worker, const std::string& name, const std::set<WorkerId>& members,
                         Value value, Duration timeout) {
  if (!members.contains(worker.id()))
    throw_invalid("[gather] worker " + worker.name() + " is no member of the gathering \"" + name + "\"");
  const WorkerId leader = *members.begin();
  const std::vector<WorkerId> all(members.begin(), members.end());
  const uint64_t ticket = worker.next_number();
  Promise<ValueList> promise;
  CallFrameScope neutral({&worker});  // of the callbacks
  kArrive.within(timeout)
      .ask(worker, leader, name, all, ticket, std::move(value))
      .on_ready([=, &worker](const Result<ValueList>& r) {
        if (r.ok()) return (void)promise.set(r.value());
        if (r.error().kind() != ErrorKind::deadline) return (void)promise.fail(r.error());
        kWithdraw.within(timeout)
            .ask(worker, leader, name, all, ticket)
            .on_ready([=, &worker](const Result<std::vector<WorkerId>>& who) {
              std::string missing;
              if (who.ok())
                for (const WorkerId m : who.value())
                  missing += (missing.empty() ? "" : ", ") + worker.members().name_of(m);
              promise.fail(Error(ErrorKind::deadline, "[gather] \"" + name + "\" gave up; missing: " +
                                                          (missing.empty() ? "unknown" : missing)));
            });
      });
  return promise.future();
}

Future<void> barrier(Worker& worker, const std::string& name, const std::set<WorkerId>& members,
                     Duration timeout) {
  return gather(worker, name, members, {}, timeout).then([](const ValueList&) {});
}

}  // namespace troupe::internal::actors
