#include "net/sim/network.h"

#include <fmt/format.h>

#include "net/sim/sim_connection.h"
#include "net/sim/world.h"

namespace troupe::internal::net {

struct Network::Core final : sim::World {
  using World::World;
  void need_virtual_time(const char* what) const {
    if (!virtual_time) throw_invalid(fmt::format("[net] {} needs a network in virtual time", what));
  }
};

namespace {

void check(const Faults& f) {
  const auto probability = [](double p, const char* name) {
    if (!(p >= 0 && p <= 1)) throw_invalid(fmt::format("[net] faults: {} is {}; expected 0 to 1", name, p));
  };
  probability(f.drop, "drop");
  probability(f.duplicate, "duplicate");
  probability(f.reorder, "reorder");
  if (f.delay < Duration(0) || f.jitter < Duration(0) || f.resend < Duration(0))
    throw_invalid("[net] faults: a delay is negative");
  if (!(f.bytes_per_second >= 0))
    throw_invalid(fmt::format("[net] faults: {} bytes per second", f.bytes_per_second));
}

}  // namespace

Network::Network(uint64_t seed, bool virtual_time) : core_(std::make_shared<Core>(seed, virtual_time)) {}
Network::~Network() { core_->stop(); }

std::unique_ptr<Transport> Network::make_transport(const std::string& name, TransportOptions options,
                                                   Events& events) {
  return sim::make_transport(core_, name, std::move(options), events);
}

const Clock& Network::clock() const { return core_->clock(); }

bool Network::step() {
  core_->need_virtual_time("step()");
  return core_->step(TimePoint::max());
}

uint64_t Network::run(Duration limit) {
  core_->need_virtual_time("run()");
  const TimePoint end = core_->later(limit);
  uint64_t events = 0;
  while (core_->step(end)) ++events;
  if (core_->pending()) core_->advance_to(end);
  return events;
}

void Network::schedule(Duration after, std::function<void()> f) {
  core_->need_virtual_time("schedule()");
  core_->after(after, std::move(f));
}

void Network::set_faults(const Faults& faults) {
  core_->need_virtual_time("set_faults()");
  check(faults);
  core_->set_faults(faults);
}

void Network::set_faults(const std::string& from, const std::string& to, const Faults& faults) {
  core_->need_virtual_time("set_faults()");
  check(faults);
  core_->set_faults(core_->link(from, to), faults);
}

void Network::partition(const std::string& a, const std::string& b) {
  sim::SimLink &there = core_->link(a, b), &back = core_->link(b, a);
  if (there.cut.exchange(true)) return;
  back.cut = true;
  const uint64_t cut = ++there.cuts;
  auto node = core_->find(a);
  if (!node) return;
  for (auto& near : node->connections()) {
    if (near->peer_node().name() != b) continue;
    for (const auto& end : {near, near->other_end()}) {
      if (!end) continue;
      const Duration silence = end->limits().dead_after;
      if (!core_->virtual_time) {
        end->end("cut off", false);
        continue;
      }
      core_->after(silence, [end, &there, cut, silence] {
        if (there.cut && there.cuts == cut) end->end(sim::silent_for(silence), false);
      });
    }
  }
}

void Network::heal(const std::string& a, const std::string& b) {
  core_->link(a, b).cut = false;
  core_->link(b, a).cut = false;
  core_->retry_waiting(a);
  core_->retry_waiting(b);
}

void Network::silence(const std::string& name) {
  const auto node = core_->find(name);
  if (!node) throw_invalid(fmt::format("[net] silence: there is no node \"{}\"", name));
  node->silent = true;
  node->stop_callbacks();
}

void Network::crash(const std::string& name, InFlight in_flight) {
  auto node = core_->find(name);
  if (!node) throw_invalid(fmt::format("[net] crash: there is no node \"{}\"", name));
  node->leave();
  node->listening = false;
  node->stop_callbacks();
  core_->remove(*node);
  core_->fail_waiting(node.get(), "this side has crashed");
  for (auto& c : node->connections()) {
    auto other = c->other_end();
    if (in_flight == InFlight::arrives) c->close_peer("it has crashed");
    c->finish("this side has crashed", false);
    if (other && in_flight == InFlight::lost) other->end("it has crashed", false);
  }
}

void Network::reset(const std::string& from, const std::string& to) {
  auto node = core_->find(from);
  if (!node) return;
  for (auto& c : node->connections())
    if (c->opened() && c->peer_node().name() == to) c->end("the connection was reset", true);
}

void Network::observe(Observer* observer) {
  core_->need_virtual_time("observe()");
  core_->observer = observer;
}

LinkCounters Network::counters(const std::string& from, const std::string& to) const {
  const auto* link = core_->find_link(from, to);
  return link ? link->counters() : LinkCounters{};
}

LinkCounters Network::counters() const { return core_->all_counters(); }

}  // namespace troupe::internal::net
