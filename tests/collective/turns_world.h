// Workers with one device each, and what is on its way between them: in order for each pair, in any order
// otherwise. Programs of transfers and collectives; workers that die, connections that break, members that
// give up, cannot take part or never call, at any moment.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "collective/turns/turns.h"

namespace troupe::testing {

using namespace internal::collective;
using TurnsOut = Turns::Out;

/// Turns of one device, or what has one of its rules left out.
class AnyTurns {
 public:
  virtual ~AnyTurns() = default;
  virtual std::unique_ptr<AnyTurns> copy() const = 0;
  virtual void ready(const DeviceOperation& operation, bool propose, TurnsOut& out) = 0;
  virtual void refuse(const DeviceOperation& operation, const Error& why, TurnsOut& out) = 0;
  virtual void give_up(DeviceOperationId id, const Error& why, TurnsOut& out) = 0;
  virtual void finished(DeviceOperationId id) = 0;
  virtual void receive(WorkerDevice from, const TurnMessage& message, TurnsOut& out) = 0;
  virtual void lost(WorkerId worker, const Error& why, TurnsOut& out) = 0;
  virtual size_t open() const = 0;
  virtual std::string state() const = 0;
};
using MakeTurns = std::unique_ptr<AnyTurns> (*)(WorkerDevice here);

/// Turns with a switch for each of their rules, made of collective/turns by
/// tests/collective/turns_without.py.
std::unique_ptr<AnyTurns> make_turns_with_switches(WorkerDevice here);
extern const std::vector<std::string> kTurnsRules;
void leave_out(size_t rule);

template <class T>
class TurnsOf final : public AnyTurns {
 public:
  explicit TurnsOf(WorkerDevice here) : turns_(here) {}
  std::unique_ptr<AnyTurns> copy() const override { return std::make_unique<TurnsOf>(*this); }
  void ready(const DeviceOperation& operation, bool propose, TurnsOut& out) override {
    with(out, [&](auto& o) { turns_.ready(operation, propose, o); });
  }
  void refuse(const DeviceOperation& operation, const Error& why, TurnsOut& out) override {
    with(out, [&](auto& o) { turns_.refuse(operation, why, o); });
  }
  void give_up(DeviceOperationId id, const Error& why, TurnsOut& out) override {
    with(out, [&](auto& o) { turns_.give_up(id, why, o); });
  }
  void finished(DeviceOperationId id) override { turns_.finished(id); }
  void receive(WorkerDevice from, const TurnMessage& message, TurnsOut& out) override {
    with(out, [&](auto& o) { turns_.receive(from, message, o); });
  }
  void lost(WorkerId worker, const Error& why, TurnsOut& out) override {
    with(out, [&](auto& o) { turns_.lost(worker, why, o); });
  }
  size_t open() const override { return turns_.open(); }
  std::string state() const override { return turns_.state(); }

 private:
  template <class F>
  static void with(TurnsOut& out, F&& call) {
    typename T::Out o;
    call(o);
    out.messages = std::move(o.messages);
    out.launches = std::move(o.launches);
    for (auto& d : o.dropped) out.dropped.push_back({d.id, d.error, d.launched});
    out.refused = o.refused;
  }
  T turns_;
};
template <class T>
std::unique_ptr<AnyTurns> make_turns(WorkerDevice here) {
  return std::make_unique<TurnsOf<T>>(here);
}

/// How many of each may still happen.
struct Mishaps {
  int deaths = 0, cuts = 0, give_ups = 0, refusals = 0;
  int skips = 0;  ///< a member of a group never calls
};

class TurnsWorld {
 public:
  static constexpr uint64_t kTransfers = 1000;  // the smallest number in place of a group's
  struct Step {
    enum What { call, deliver, end, notice, hear, die, cut, give_up, refuse, skip } what;
    uint32_t a = 0, b = 0;
    DeviceOperationId id = {};
  };

  TurnsWorld(uint32_t workers, MakeTurns make = make_turns<Turns>)
      : workers_(workers), alive(workers, true), launched(workers), dropped(workers) {
    for (uint32_t i = 0; i < workers; ++i) workers_[i].turns = make({i, 0});
  }
  TurnsWorld(const TurnsWorld& other)
      : workers_(other.workers_.size()),
        alive(other.alive),
        launched(other.launched),
        dropped(other.dropped),
        mishaps(other.mishaps),
        sent(other.sent),
        fault_(other.fault_),
        wires_(other.wires_),
        cuts_(other.cuts_),
        ready_(other.ready_),
        ended_(other.ended_),
        hopeless_(other.hopeless_),
        heard_(other.heard_) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      workers_[i] = {nullptr, other.workers_[i].calls, other.workers_[i].running, other.workers_[i].knows};
      workers_[i].turns = other.workers_[i].turns->copy();
    }
  }
  TurnsWorld& operator=(const TurnsWorld&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(workers_.size()); }
  AnyTurns& turns(uint32_t worker) { return *workers_[worker].turns; }

  // The receiver hears of it by a message of another connection, before the sender calls or later.
  void add_transfer(uint32_t from, uint32_t to, uint64_t number) {
    const DeviceOperation o{.id = {kTransfers + from, number},
                            .leader = {to, 0},
                            .members = {{from, 0}, {to, 0}},
                            .brings = "transfer float32 [1000]",
                            .called_by_all = true};
    workers_[from].calls.push_back({o, true});
    workers_[to].calls.push_back({o, false});
  }
  static DeviceOperation collective(uint64_t group, const std::vector<uint32_t>& who, uint64_t number) {
    DeviceOperation o{
        .id = {group, number}, .leader = {who[0], 0}, .brings = "all_reduce sum float32 [1000]"};
    for (const uint32_t w : who) o.members.push_back({w, 0});
    return o;
  }
  void add_collective(uint64_t group, const std::vector<uint32_t>& who, uint64_t number) {
    for (const uint32_t w : who) add_call(w, collective(group, who, number));
  }
  void add_call(uint32_t worker, const DeviceOperation& operation) {
    workers_[worker].calls.push_back({operation, false});
  }

  // What can happen by itself, and then what must not happen more often than `mishaps` says.
  std::vector<Step> steps() const {
    std::vector<Step> all;
    for (uint32_t i = 0; i < size(); ++i) {
      if (!alive[i]) continue;
      const Worker& w = workers_[i];
      for (uint32_t k = 0; k < w.calls.size(); ++k) all.push_back({Step::call, i, k});
      if (!w.running.empty() && can_end(w.running.front())) all.push_back({Step::end, i});
    }
    for (const auto& [ends, wire] : wires_)
      if (!wire.empty() && alive[ends.second] && !workers_[ends.second].knows.contains(ends.first))
        all.push_back({Step::deliver, ends.first, ends.second});
    for (uint32_t gone = 0; gone < size(); ++gone)
      for (uint32_t i = 0; i < size(); ++i)
        if (alive[i] && (!alive[gone] || cuts_.contains({gone, i})) && !workers_[i].knows.contains(gone))
          all.push_back({Step::notice, gone, i});
    for (const auto& [id, why] : hopeless_)
      for (uint32_t i = 0; i < size(); ++i)
        if (alive[i] && !heard_.contains({id, i}) && (is_to_call(i, id) || waits(i, id)))
          all.push_back({Step::hear, i, 0, id});
    return all;
  }
  std::vector<Step> mishap_steps() const {
    std::vector<Step> all;
    for (uint32_t i = 0; i < size(); ++i) {
      if (!alive[i]) continue;
      if (mishaps.deaths > 0) all.push_back({Step::die, i});
      for (uint32_t k = 0; mishaps.cuts > 0 && k < i; ++k)
        if (alive[k] && !cuts_.contains({i, k})) all.push_back({Step::cut, i, k});
      if (mishaps.give_ups > 0)
        for (const auto& [id, who] : ready_)
          if (waits(i, id)) all.push_back({Step::give_up, i, 0, id});
      for (uint32_t k = 0; k < workers_[i].calls.size(); ++k) {
        if (mishaps.refusals > 0) all.push_back({Step::refuse, i, k});
        if (mishaps.skips > 0 && !workers_[i].calls[k].operation.called_by_all)
          all.push_back({Step::skip, i, k});
      }
    }
    return all;
  }

  void run(const Step& s) {
    TurnsOut out;
    switch (s.what) {
      case Step::call:
      case Step::refuse: {
        Worker& w = workers_[s.a];
        const Call call = w.calls[s.b];
        w.calls.erase(w.calls.begin() + s.b);
        begin(s.a, call.operation, call.proposes, s.what == Step::refuse && mishaps.refusals-- > 0);
        return;
      }
      case Step::deliver: {
        auto& wire = wires_[{s.a, s.b}];
        const auto m = wire.front();
        wire.pop_front();
        workers_[s.b].turns->receive({s.a, 0}, *m, out);
        take(s.b, std::move(out));
        return;
      }
      case Step::end: {
        auto& running = workers_[s.a].running;
        const DeviceOperationId id = running.front().id;
        running.erase(running.begin());
        ended_.insert({id, s.a});
        workers_[s.a].turns->finished(id);
        return;
      }
      case Step::notice:
        workers_[s.b].knows.insert(s.a);
        wires_[{s.a, s.b}].clear();
        std::erase_if(workers_[s.b].calls, [&](const Call& c) {  // the message is lost as well
          return c.operation.id.group == kTransfers + s.a;
        });
        workers_[s.b].turns->lost(s.a, Error(ErrorKind::disconnected, "the connection ended"), out);
        break;
      case Step::die:
        --mishaps.deaths;
        alive[s.a] = false;
        workers_[s.a].running.clear();
        workers_[s.a].calls.clear();
        for (auto& [ends, wire] : wires_)
          if (ends.second == s.a) wire.clear();
        return;  // what it had sent may still arrive, up to some message
      case Step::cut:
        --mishaps.cuts;
        cuts_.insert({s.a, s.b});
        cuts_.insert({s.b, s.a});
        return;  // each of the two will count the other as lost; a third one sees nothing
      case Step::hear: {
        heard_.insert({s.id, s.a});
        std::erase_if(workers_[s.a].calls, [&](const Call& c) { return c.operation.id == s.id; });
        if (waits(s.a, s.id)) workers_[s.a].turns->give_up(s.id, hopeless_.at(s.id), out);
        break;
      }
      case Step::skip: {
        --mishaps.skips;
        auto& calls = workers_[s.a].calls;
        hopeless_.emplace(calls[s.b].operation.id, Error(ErrorKind::cancelled, "a member has not called it"));
        calls.erase(calls.begin() + s.b);
        return;
      }
      case Step::give_up:
        --mishaps.give_ups;
        workers_[s.a].turns->give_up(s.id, Error(ErrorKind::deadline, "it took longer than 5 s"), out);
        break;
    }
    take(s.what == Step::notice ? s.b : s.a, std::move(out));
  }
  void begin(uint32_t worker, const DeviceOperation& operation, bool proposes, bool refuses = false) {
    TurnsOut out;
    ready_[operation.id].insert(worker);
    if (refuses)
      workers_[worker].turns->refuse(operation, Error(ErrorKind::failed, "memory is out"), out);
    else
      workers_[worker].turns->ready(operation, proposes, out);
    take(worker, std::move(out));
  }
  void call_all() {
    for (uint32_t i = 0; i < size(); ++i)
      while (!workers_[i].calls.empty()) run({Step::call, i});
  }
  template <class Random>
  void settle(Random& random) {
    for (auto all = steps(); !all.empty() && fault_.empty(); all = steps())
      run(all[random.below(all.size())]);
  }
  bool has_ended(DeviceOperationId id, uint32_t worker) const { return ended_.contains({id, worker}); }

  // A wrong step; and where nothing can happen any more, what has not ended, or is kept.
  std::string fault() const {
    if (!fault_.empty() || !steps().empty()) return fault_;
    std::string text;
    for (uint32_t i = 0; i < size(); ++i) {
      if (!alive[i]) continue;
      const Worker& w = workers_[i];
      const std::string who = "w" + std::to_string(i);
      if (!w.running.empty()) text += who + " runs " + text_of(w.running.front().id) + " for ever; ";
      if (w.turns->open() != 0) text += who + " keeps " + w.turns->state() + "; ";
      for (const auto& [id, callers] : ready_)
        if (callers.contains(i) && ended_.contains({id, i}) + dropped[i].contains(id) != 1)
          text += who + " is told " + (dropped[i].contains(id) ? "twice" : "never") + " how " + text_of(id) +
                  " ends; ";
    }
    return text;
  }
  std::string state() const {
    std::string text;
    const auto add = [&text](auto... numbers) { ((text += std::to_string(numbers) + ","), ...); };
    add(mishaps.deaths, mishaps.cuts, mishaps.give_ups, mishaps.refusals, mishaps.skips);
    for (const auto& [a, b] : cuts_) add(a, b);
    for (uint32_t i = 0; i < size(); ++i) {
      const Worker& w = workers_[i];
      text += "\n" + w.turns->state() + (alive[i] ? "#" : "x");
      std::set<std::pair<uint64_t, uint64_t>> calls;  // their order does not matter
      for (const Call& c : w.calls) calls.insert({c.operation.id.group, c.operation.id.number});
      for (const auto& [group, number] : calls) add(group, number);
      text += "r";
      for (const DeviceOperation& o : w.running) add(o.id.group, o.id.number);
      text += "k";
      for (const uint32_t k : w.knows) add(k);
    }
    text += "e";
    for (const auto& [id, who] : ended_) add(id.group, id.number, who);
    text += "h";
    for (const auto& [id, why] : hopeless_) add(id.group, id.number);
    for (const auto& [id, who] : heard_) add(id.group, id.number, who);
    for (const auto& [ends, wire] : wires_) {
      if (wire.empty()) continue;
      text += ">";
      add(ends.first, ends.second);
      for (const auto& m : wire)
        add(static_cast<int>(m->kind), m->operation.id.group, m->operation.id.number, m->time, m->was_ready);
    }
    return text;
  }

 private:
  struct Call {
    DeviceOperation operation;
    bool proposes;
  };
  struct Worker {
    std::unique_ptr<AnyTurns> turns;
    std::vector<Call> calls;               // that it has not made yet, in any order
    std::vector<DeviceOperation> running;  // launched, in the order of the device's stream
    std::set<uint32_t> knows;              // who is lost
  };
  std::vector<Worker> workers_;

 public:
  std::vector<bool> alive;
  std::vector<std::vector<DeviceOperationId>> launched;
  std::vector<std::map<DeviceOperationId, Error>> dropped;
  Mishaps mishaps;
  size_t sent = 0;

 private:
  static std::string text_of(DeviceOperationId id) {
    return std::to_string(id.group) + "." + std::to_string(id.number);
  }
  bool has_launched(uint32_t worker, DeviceOperationId id) const {
    return std::ranges::find(launched[worker], id) != launched[worker].end();
  }
  bool waits(uint32_t worker, DeviceOperationId id) const {
    const auto callers = ready_.find(id);
    return callers != ready_.end() && callers->second.contains(worker) && !dropped[worker].contains(id) &&
           !has_launched(worker, id);
  }
  bool is_to_call(uint32_t worker, DeviceOperationId id) const {
    const auto& calls = workers_[worker].calls;
    return std::ranges::any_of(calls, [&](const Call& c) { return c.operation.id == id; });
  }
  // As NCCL: where it is at the head of all members' streams, or has ended there.
  bool can_end(const DeviceOperation& operation) const {
    return std::ranges::all_of(operation.members, [&](WorkerDevice d) {
      const auto& running = workers_[d.worker].running;
      return ended_.contains({operation.id, d.worker}) ||
             (alive[d.worker] && !running.empty() && running.front().id == operation.id);
    });
  }
  void take(uint32_t at, TurnsOut out) {
    if (out.refused && fault_.empty()) fault_ = out.refused->message();
    for (auto& [to, m] : out.messages) {
      ++sent;
      if (alive[to.worker] && !cuts_.contains({at, to.worker}))
        wires_[{at, to.worker}].push_back(std::make_shared<TurnMessage>(std::move(m)));
    }
    for (const DeviceOperation& o : out.launches) {
      for (const WorkerDevice d : o.members)
        if (!ready_[o.id].contains(d.worker))
          fault_ = "w" + std::to_string(at) + " launches " + text_of(o.id) + " before w" +
                   std::to_string(d.worker) + " is ready; ";
      launched[at].push_back(o.id);
      workers_[at].running.push_back(o);
    }
    for (auto& d : out.dropped) {
      if (d.id.group < kTransfers) hopeless_.emplace(d.id, d.error);
      if (d.launched != has_launched(at, d.id)) fault_ = "a drop forgets whether it was launched; ";
      if (!dropped[at].emplace(d.id, std::move(d.error)).second) fault_ = "it is dropped twice; ";
      std::erase_if(workers_[at].running, [&](const DeviceOperation& o) { return o.id == d.id; });
    }
  }

  std::string fault_;
  std::map<std::pair<uint32_t, uint32_t>, std::deque<std::shared_ptr<const TurnMessage>>> wires_;
  std::set<std::pair<uint32_t, uint32_t>> cuts_;
  std::map<DeviceOperationId, std::set<uint32_t>> ready_;
  std::set<std::pair<DeviceOperationId, uint32_t>> ended_;
  // Operations of groups that fail on a rank: the ranks tell each other, by messages of their own, and who
  // has heard gives up or does not call it.
  std::map<DeviceOperationId, Error> hopeless_;
  std::set<std::pair<DeviceOperationId, uint32_t>> heard_;
};

/// Every order of everything, with the world's mishaps at every moment.
class TurnsSearch {
 public:
  void visit(const TurnsWorld& world) {
    if (!fault.empty() || !seen_.insert(world.state()).second) return;
    if (fault = world.fault(); !fault.empty()) {
      fault += "\n" + world.state();
      return;
    }
    const auto next = world.steps();
    ends += next.empty();
    for (const auto& s : next) go(world, s);
    for (const auto& s : world.mishap_steps()) go(world, s);
  }
  size_t states() const { return seen_.size(); }
  size_t ends = 0;
  std::string fault;

 private:
  void go(const TurnsWorld& world, const TurnsWorld::Step& step) {
    if (!fault.empty()) return;
    TurnsWorld next(world);
    next.run(step);
    visit(next);
  }
  std::unordered_set<std::string> seen_;
};

}  // namespace troupe::testing
