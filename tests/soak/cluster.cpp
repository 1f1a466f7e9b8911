#include "tests/soak/cluster.h"

#include "actors/worker/worker.h"

#include <algorithm>

namespace troupe::soak {
namespace {

thread_local Cluster* running = nullptr;

}  // namespace

Cluster* Cluster::current() { return running; }

Cluster::Cluster(const Plan& plan, internal::actors::TypeRegistry hosting, bool tracing)
    : plan_(plan),
      hosting_(std::move(hosting)),
      outer_(std::exchange(running, this)),
      random_(Generator(plan.seed).split(1)),
      network_(splitmix64(plan.seed), true),
      tracing_(tracing) {
  network_.observe(this);
  network_.set_faults(plan.links);
  for (int i = 0; i < plan.workers; ++i) start();
}

Cluster::~Cluster() {
  end();
  network_.observe(nullptr);
  running = outer_;
}

// ---- workers

Process& Cluster::start() {
  auto made = std::make_unique<Process>();
  Process& p = *made;
  p.id = static_cast<WorkerId>(processes_.size());
  p.name = "w" + std::to_string(p.id);
  p.runtime =
      std::make_shared<internal::actors::SerialRuntime>([this, &p](const std::function<void()>& turn) {
        if (over_ || random_.below(8) >= plan_.late_turns) return false;
        const auto latest = static_cast<uint64_t>(plan_.latest_turn.count());
        network_.schedule(Duration(static_cast<int64_t>(random_.below(latest))), [this, &p, turn] {
          if (p.alive && !over_) turn();
        });
        return true;
      });
  p.stack = std::make_unique<WorkerStack>(internal::actors::WorkerOptions{.id = p.id,
                                                                          .name = p.name,
                                                                          .host = "sim",
                                                                          .hosting = hosting_,
                                                                          .runtime = p.runtime,
                                                                          .clock = &network_.clock(),
                                                                          .timer_thread = false});
  p.worker = &p.stack->worker();
  p.references = p.stack->references();
  p.worker->on_lost().add([this, &p](WorkerId id, const Error& why) { lost(p, id, why); });
  p.worker->members().add({p.id, p.name, "sim", {"sim:" + p.name}});
  for (auto& o : processes_) {
    if (!o->alive) continue;
    o->worker->members().add({p.id, p.name, "sim", {"sim:" + p.name}});
    p.worker->members().add({o->id, o->name, "sim", {"sim:" + o->name}});
  }
  p.stack->use_memory(network_, "a token for simulations");
  processes_.push_back(std::move(made));
  note("starts " + p.name);
  return p;
}

void Cluster::crash(Process& process, internal::net::InFlight in_flight) {
  if (!process.alive) return;
  note("crash of " + process.name);
  process.alive = false;
  network_.crash(process.name, in_flight);
}

Process& Cluster::here() {
  for (auto& p : processes_)
    if (frame().worker == p->worker) return *p;
  throw_invalid("no worker is active here");
}

void Cluster::end() {
  if (std::exchange(over_, true)) return;
  for (auto& p : processes_) p->alive = false;
  std::exchange(sleeping_, {}).clear();  // wakes programs that have died
  for (auto& p : processes_) {
    p->worker->interrupt("the run is over");
    p->worker->stop();
    p->runtime->finish();
  }
  for (auto& p : processes_) {
    p->worker = nullptr;
    p->stack.reset();
    p->references.reset();
  }
  for (auto& p : processes_)
    if (p->programs)
      failure_ = failure_.value_or("a future of " + p->name + " was not ready when it had ended");
}

// ---- time

TimePoint Cluster::tick() {
  TimePoint next = TimePoint::max();
  for (auto& p : processes_)
    if (p->alive) next = std::min(next, p->worker->tick());
  return next;
}

bool Cluster::step() {
  TimePoint next = tick();
  for (TimePoint again = tick(); again != next; again = tick()) next = again;  // what failed led to new calls
  if (next != TimePoint::max() && next != wake_) {  // no event may overtake a deadline
    wake_ = next;
    network_.schedule(std::max(next - now(), Duration(0)), [] {});
  }
  ++events_;
  return network_.step();
}

Future<void> Cluster::sleep(Duration time) {
  if (over_) return Future<void>::failed(Error(ErrorKind::cancelled, "the run is over"));
  const uint64_t number = ++last_sleep_;
  const auto future = sleeping_[number].future();
  network_.schedule(time, [this, number, &p = here()] {
    if (p.alive) sleeping_.extract(number).mapped().set();
  });
  return future;
}

// ---- messages

void Cluster::sending(const std::string& from, const std::string& to, const internal::net::Message& m) {
  if (over_) return;
  mix(static_cast<uint64_t>(now().time_since_epoch().count()));
  for (uint64_t word : m.header) mix(word);
  for (const auto& b : m.buffers)
    for (size_t i = 0; i < b.size; ++i) mix(static_cast<uint64_t>(b.data()[i]));
  std::optional<internal::net::Packet> packet;
  if (watch_ || tracing_) packet = internal::net::decode(m);
  happen(Moment::sending, named(from), named(to), packet ? &*packet : nullptr);
}

void Cluster::arriving(const std::string& from, const std::string& to, const internal::net::Message& m) {
  if (over_) return;
  mix(static_cast<uint64_t>(now().time_since_epoch().count()));
  arrived_ = internal::net::decode(m);
  check_wire(named(from), named(to), arrived_);
  happen(Moment::arriving, named(from), named(to), &arrived_);
}

void Cluster::handled(const std::string& from, const std::string& to) {
  if (!over_) happen(Moment::handled, named(from), named(to), &arrived_);
}

void Cluster::happen(Moment moment, Process& from, Process& to, const internal::net::Packet* packet) {
  if (tracing_ && packet && moment != Moment::handled) {
    static const char* const words[] = {"sends", "gets"};
    std::string line = moment == Moment::sending ? from.name + " " + words[0] + " " + to.name + " "
                                                 : to.name + " " + words[1] + " from " + from.name + " ";
    note(line + describe(*packet));
  }
  if (watch_) watch_(moment, from, to, packet);
  const uint64_t count = ++moments_[static_cast<int>(moment)];
  for (const Fault& f : plan_.faults)
    if (f.moment == moment && f.message == count) apply(f, from, to);
}

void Cluster::apply(const Fault& fault, Process& from, Process& to) {
  Process &side = fault.receiver ? to : from, &other = fault.receiver ? from : to;
  if (!side.alive || !other.alive || &side == &other) return;
  ++faults_;
  switch (fault.kind) {
    case Fault::Kind::kill:
      crash(side, fault.last_words ? internal::net::InFlight::arrives : internal::net::InFlight::lost);
      if (fault.lasts > Duration(0))
        network_.schedule(fault.lasts, [this] {
          if (!over_) start();
        });
      return;
    case Fault::Kind::reset:
      note("reset of the connections of " + side.name + " to " + other.name);
      touched_.insert(std::minmax(side.id, other.id));
      return network_.reset(side.name, other.name);
    case Fault::Kind::partition:
    case Fault::Kind::loss:
      note(side.name + " and " + other.name + " are cut off");
      touched_.insert(std::minmax(side.id, other.id));
      network_.partition(side.name, other.name);
      return network_.schedule(fault.lasts, [this, a = side.name, b = other.name] {
        note(a + " and " + b + " are no longer cut off");
        network_.heal(a, b);
      });
  }
}

}  // namespace troupe::soak
