#include "troupe/simulated/simulated_cluster.h"

#include <algorithm>
#include <map>
#include <set>

#include "actors/runtime/serial_runtime.h"
#include "actors/worker/worker.h"
#include "core/async/waiting.h"
#include "core/graph/autocast.h"
#include "rref/ref_table.h"
#include "troupe/cluster/worker_stack.h"
#include "troupe/simulated/message_log.h"

namespace troupe {

struct SimulatedCluster::World final : WaitedWorld, internal::net::Observer {
  using Message = internal::net::Message;
  using Moment = SimulatedFault::Moment;
  using Kind = SimulatedFault::Kind;
  World(uint64_t seed, int count, const internal::actors::TypeRegistry& hosting,
        const SimulatedOptions& options)
      : network(seed, true), runtime(std::make_shared<internal::actors::SerialRuntime>()), scope(*this) {
    if (count < 1) throw_invalid("[simulated] needs at least one worker, got " + std::to_string(count));
    if (!options.hosts.empty() && options.hosts.size() != static_cast<size_t>(count))
      throw_invalid("[simulated] " + std::to_string(options.hosts.size()) + " hosts for " +
                    std::to_string(count) + " workers; give one for each, or none");
    const auto types = with_builtin_types(hosting);
    for (int i = 0; i < count; ++i)
      stacks.push_back(std::make_unique<WorkerStack>(internal::actors::WorkerOptions{
          .id = static_cast<WorkerId>(i),
          .name = "w" + std::to_string(i),
          .host = options.hosts.empty() ? "sim" : options.hosts[static_cast<size_t>(i)],
          .hosting = types,
          .runtime = runtime,
          .dispatch = internal::actors::Dispatch::caller,
          .timeout = options.timeout,
          .limits = options.limits,
          .clock = &network.clock(),
          .timer_thread = false}));
    alive.assign(stacks.size(), true);
    connect_in_memory(stacks, network, "a token for simulations");
    network.set_faults(options.links);
    network.observe(this);
  }
  ~World() override { network.observe(nullptr); }

  size_t index(const std::string& name) const {
    for (size_t i = 0; i < stacks.size(); ++i)
      if (stacks[i]->worker().name() == name) return i;
    throw_invalid("[simulated] there is no worker \"" + name + "\"; there are w0 to w" +
                  std::to_string(stacks.size() - 1));
  }

  // ---- time
  TimePoint tick() {
    TimePoint next = TimePoint::max();
    for (size_t i = 0; i < stacks.size(); ++i)
      if (alive[i]) next = std::min(next, stacks[i]->worker().tick());
    return next;
  }
  bool step() {
    if (moments[0] > most_messages)
      throw_error(ErrorKind::failed, "[simulated] more than " + std::to_string(most_messages) +
                                         " messages have been sent: it does not come to an end");
    const TimePoint next = tick();
    if (next != TimePoint::max() && next != wake) {  // no event may overtake a deadline
      wake = next;
      network.schedule(std::max(next - network.clock().now(), Duration(1)), [] {});
    }
    if (!network.step()) return false;
    tick();
    return true;
  }
  bool run_until(const Ready& done, TimePoint end) override {
    CallFrame neutral;
    neutral.callback = true;
    const CallFrameScope frame(neutral);
    const ThreadModeScope modes({true, Autocast::off});
    if (end != TimePoint::max() && end > network.clock().now() && !done.is_set())
      network.schedule(end - network.clock().now(), [] {});
    while (!done.is_set()) {
      if (network.clock().now() >= end) return false;
      if (!step() && !done.is_set())
        throw_error(ErrorKind::failed,
                    "[simulated] nothing is left to happen, and what is waited for has not come: does the "
                    "one that should give it wait, too?");
    }
    return true;
  }
  const Clock& clock() const override { return network.clock(); }

  // ---- messages
  void sending(const std::string& from, const std::string& to, const Message& message) override {
    log.add(moments[0] + 1, network.clock().now().time_since_epoch(), from, to, message);
    happen(Moment::sending, from, to);
  }
  void arriving(const std::string& from, const std::string& to, const Message&) override {
    happen(Moment::arriving, from, to);
  }
  void handled(const std::string& from, const std::string& to) override { happen(Moment::handled, from, to); }
  void happen(Moment moment, const std::string& from, const std::string& to) {
    const uint64_t number = ++moments[static_cast<size_t>(moment)];
    for (size_t i = 0; i < faults.size(); ++i)  // what breaks may send messages, too
      if (faults[i].moment == moment && faults[i].message == number) apply(faults[i], from, to);
  }
  void apply(const SimulatedFault& fault, const std::string& from, const std::string& to) {
    const std::string &side = fault.receiver ? to : from, &other = fault.receiver ? from : to;
    if (!alive[index(side)] || !alive[index(other)] || side == other) return;
    if (fault.kind == Kind::kill && index(side) == 0) return;  // it drives
    ++met;
    log.note(fault.describe() + ": " + side);
    switch (fault.kind) {
      case Kind::kill:
        return kill(index(side), fault.last_words);
      case Kind::reset:
        return network.reset(side, other);
      case Kind::partition:
      case Kind::loss:
        const uint64_t number = ++last_cut;
        cut(side, other, number);
        return network.schedule(fault.lasts, [this, side, other, number] { end_cut(side, other, number); });
    }
  }
  // Each cut of two workers ends by itself, and they hear each other again when all have.
  void cut(const std::string& a, const std::string& b, uint64_t number) {
    cuts[std::minmax(a, b)].insert(number);
    network.partition(a, b);
  }
  void end_cut(const std::string& a, const std::string& b, uint64_t number) {
    const auto at = cuts.find(std::minmax(a, b));
    if (at != cuts.end() && at->second.erase(number) > 0 && at->second.empty()) heal(a, b);
  }
  void heal(const std::string& a, const std::string& b) {
    cuts.erase(std::minmax(a, b));
    network.heal(a, b);
  }
  void kill(size_t i, bool last_words) {
    alive[i] = false;
    network.crash(stacks[i]->worker().name(),
                  last_words ? internal::net::InFlight::arrives : internal::net::InFlight::lost);
  }

  internal::net::Network network;
  TimePoint wake = TimePoint::max();  // of the last deadline that was scheduled
  std::vector<SimulatedFault> faults;
  std::map<std::pair<std::string, std::string>, std::set<uint64_t>> cuts;  // 0: by partition()
  uint64_t last_cut = 0;
  uint64_t moments[3] = {0, 0, 0}, met = 0, most_messages = ~uint64_t{0};
  internal::MessageLog log;
  std::vector<bool> alive;
  std::shared_ptr<internal::actors::Runtime> runtime;
  WorkerStacks stacks;
  WorldScope scope;
};

SimulatedCluster::SimulatedCluster(uint64_t seed, int workers, internal::actors::TypeRegistry hosting,
                                   const SimulatedOptions& options)
    : Cluster({.timeout = options.timeout, .leak_check = LeakCheck::off, .limits = options.limits}),
      world_(std::make_unique<World>(seed, workers, hosting, options)) {
  table_ = world_->stacks.front()->references();
  worker_ = &world_->stacks.front()->worker();
}

SimulatedCluster::~SimulatedCluster() {
  if (begin_end()) SimulatedCluster::end({});
}

std::vector<std::string> SimulatedCluster::end(Duration) {
  for (auto& stack : world_->stacks) stack->worker().stop();
  for (auto& stack : world_->stacks) stack->stop_listening();
  return {};
}

void SimulatedCluster::set_links(const LinkFaults& faults) { world_->network.set_faults(faults); }

void SimulatedCluster::set_links(const std::string& from, const std::string& to, const LinkFaults& faults) {
  world_->network.set_faults(from, to, faults);
}

void SimulatedCluster::kill(const std::string& worker, bool last_words) {
  const size_t i = world_->index(worker);
  if (i == 0) throw_invalid("[simulated] w0 cannot be killed: it drives; kill another worker");
  if (!world_->alive[i]) throw_invalid("[simulated] " + worker + " has been killed already");
  world_->kill(i, last_words);
}

bool SimulatedCluster::is_alive(const std::string& worker) const {
  return world_->alive[world_->index(worker)];
}

void SimulatedCluster::reset(const std::string& from, const std::string& to) {
  world_->network.reset(from, to);
}

void SimulatedCluster::partition(const std::string& a, const std::string& b) { world_->cut(a, b, 0); }

void SimulatedCluster::heal(const std::string& a, const std::string& b) { world_->heal(a, b); }

void SimulatedCluster::plan(std::vector<SimulatedFault> faults) { world_->faults = std::move(faults); }

void SimulatedCluster::limit_messages(uint64_t most) { world_->most_messages = most; }

Duration SimulatedCluster::now() const { return world_->clock().now().time_since_epoch(); }

void SimulatedCluster::after(Duration time, std::function<void()> f) {
  world_->network.schedule(time, std::move(f));
}

bool SimulatedCluster::step() { return world_->step(); }

void SimulatedCluster::pass(Duration time) {
  const Promise<void> never;
  (void)never.future().wait_for(time);
}

void SimulatedCluster::settle() {
  while (step()) {
  }
}

void SimulatedCluster::await_ready(const FutureBase& future) {
  (void)world_->run_until(future.core().ready, TimePoint::max());
}

Here SimulatedCluster::here(size_t worker) const { return Here(world_->stacks.at(worker)->references()); }

uint64_t SimulatedCluster::messages(SimulatedFault::Moment moment) const {
  return world_->moments[static_cast<size_t>(moment)];
}

uint64_t SimulatedCluster::faults_met() const { return world_->met; }

void SimulatedCluster::keep_log() { world_->log.keep(); }

std::vector<std::string> SimulatedCluster::log() const { return world_->log.lines(); }

std::string SimulatedCluster::left() const {
  std::string out;
  for (size_t i = 0; i < world_->stacks.size(); ++i) {
    if (!world_->alive[i]) continue;
    const auto metrics = world_->stacks[i]->worker().metrics();
    std::string here;
    for (const char* what : {"actors", "contexts", "send_nodes", "receive_nodes", "backward_passes",
                             "owned_objects", "pending_references", "borrowed_references", "pending_calls"})
      if (const auto at = metrics.find(what); at != metrics.end() && at->second)
        here += (here.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(at->second);
    if (!here.empty()) out += (out.empty() ? "" : "; ") + world_->stacks[i]->worker().name() + ": " + here;
  }
  return out;
}

std::vector<internal::actors::Worker*> SimulatedCluster::workers_here() const {
  std::vector<internal::actors::Worker*> all;
  for (auto& stack : world_->stacks) all.push_back(&stack->worker());
  return all;
}

internal::net::Network& SimulatedCluster::network() { return world_->network; }

internal::actors::Worker& SimulatedCluster::worker(size_t i) const { return world_->stacks.at(i)->worker(); }

}  // namespace troupe
