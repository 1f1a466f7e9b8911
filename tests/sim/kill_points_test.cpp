// A worker dies at an exact point of a training step, or while references are on their way: the originator
// hears of it by name, the survivors forget everything, and go on.
#include <catch2/catch.hpp>

#include "core/base/log.h"
#include "tests/soak/script.h"

namespace troupe::soak {
namespace {

using namespace std::chrono_literals;

// The worker that dies, and when: at a moment of the n-th message of a method, or of the reply to one.
struct Point {
  const char* name;
  WorkerId victim;
  Moment moment;
  const char* method;
  bool reply = false;
  int count = 1;
};

// w0 drives shards on w1, w2 and w3, where w1 calls w2 and w2 calls w3.
const Point kTraining[] = {
    {"before the call: the actor is about to be made", 1, Moment::arriving, "ref.spawn"},
    {"before the call: the actor has been made", 1, Moment::handled, "ref.spawn"},
    {"forward, first hop, the call arrives", 1, Moment::arriving, "chain"},
    {"forward, first hop, the call has been passed on", 1, Moment::handled, "chain"},
    {"forward, middle hop, the call arrives", 2, Moment::arriving, "chain"},
    {"forward, middle hop, the call has been passed on", 2, Moment::handled, "chain"},
    {"forward, last hop, the call arrives", 3, Moment::arriving, "chain"},
    {"forward, last hop, about to answer", 3, Moment::sending, "chain", true},
    {"forward, middle hop, the answer arrives", 2, Moment::arriving, "chain", true},
    {"forward, first hop, about to answer", 1, Moment::sending, "chain", true},
    {"between forward and backward, first hop", 1, Moment::handled, "ref.unpin"},
    {"backward, first hop, gradients arrive", 1, Moment::arriving, "grad.backward"},
    {"backward, first hop, gradients have been sent on", 1, Moment::handled, "grad.backward"},
    {"backward, middle hop, gradients arrive", 2, Moment::arriving, "grad.backward"},
    {"backward, middle hop, about to send gradients on", 2, Moment::sending, "grad.backward"},
    {"backward, last hop, gradients arrive", 3, Moment::arriving, "grad.backward"},
    {"backward, last hop, gradients are there", 3, Moment::handled, "grad.backward"},
    {"optimizer step, the call arrives", 2, Moment::arriving, "optim.step"},
    {"optimizer step, about to answer", 2, Moment::sending, "optim.step", true},
    {"optimizer step, the answer has been sent", 3, Moment::handled, "optim.step"},
    {"cleanup, the end of the context arrives", 2, Moment::arriving, "grad.release"},
    {"cleanup, the context has been forgotten", 3, Moment::handled, "grad.release"},
    {"cleanup, the last reference is about to be given back", 1, Moment::arriving, "ref.give_back"},
};

// w0 has w1 keep a unit of w3, and hand it on to w2.
const Point kReferences[] = {
    {"it holds a reference to a third worker's object", 1, Moment::handled, "keep"},
    {"it hands a reference on that nobody has registered yet", 1, Moment::sending, "keep_many"},
    {"a reference is about to be registered", 2, Moment::sending, "ref.register"},
    {"the owner is asked to register a holder", 3, Moment::arriving, "ref.register"},
    {"the owner has registered a holder", 3, Moment::sending, "ref.register", true},
    {"it is told that its copy is no longer needed", 1, Moment::arriving, "ref.unpin"},
};

struct Heard {
  std::optional<TimePoint> died, told;
  std::optional<Error> error;
};
thread_local Heard heard;

void note(const Error& error) {
  if (heard.error) return;
  heard.error = error;
  heard.told = Cluster::current()->now();
}
template <class T>
bool fine(const Result<T>& r) {
  if (!r.ok()) note(r.error());
  return r.ok();
}

Task<void> training(Script& s) {
  std::vector<RRef<Shard>> shards;
  for (WorkerId w = 1; w <= 3; ++w) shards.push_back(s.process.spawn<Shard>(w, 2.0, 3.0));
  {
    const std::vector<AnyRef> all(shards.begin(), shards.end());
    optim::Distributed<optim::SGD> optimizer(all, {.lr = 0.125});
    autograd::Context context(*s.process.worker);
    std::vector<RRef<Shard>> others(shards.begin() + 1, shards.end());
    const auto y = co_await settled(tracked<&Shard::chain>(shards[0], others, s.tensor()));
    others.clear();
    if (fine(y)) {
      co_await s.cluster.sleep(20ms);  // the references that went along are let go of meanwhile
      const Tensors roots{y.value().sum()};
      const auto back = co_await settled(context.backward_async(roots));
      if (fine(back)) {
        const auto stepped = co_await settled(optimizer.step_async(context));
        if (fine(stepped)) (void)co_await settled(context.end());  // a dead worker has forgotten it, too
      }
    }
  }
  for (auto& shard : shards) {  // the next use
    const auto r = co_await settled(tracked<&Shard::weights>(shard));
    (void)fine(r);
  }
  shards.clear();
  co_await s.cluster.sleep(20ms);
  for (WorkerId w = 1; w <= 3; ++w) {
    const RRef<Unit> unit = s.unit(w, 2);
    const auto r = co_await settled(tracked<&Unit::mix>(unit, s.tensor()));
    (void)fine(r);
  }
}

Task<void> references(Script& s) {
  RRef<Unit> owned = s.unit(3, 3), keeper = s.unit(1, 5), other = s.unit(2, 7);
  const auto kept = co_await settled(tracked<&Unit::keep>(keeper, owned));
  if (fine(kept)) {
    const auto handed = co_await settled(tracked<&Unit::hand>(keeper, other));
    (void)fine(handed);
  }
  co_await s.cluster.sleep(20ms);
  for (const auto& unit : {owned, keeper, other}) {
    const auto r = co_await settled(tracked<&Unit::mix>(unit, s.tensor()));
    (void)fine(r);
  }
}

Task<void> new_step(Script& s) {
  std::vector<WorkerId> living;
  for (size_t i = 1; i < s.cluster.size(); ++i)
    if (s.cluster.process(i).alive) living.push_back(s.cluster.process(i).id);
  const bool right = co_await one_step(s, living.at(0), living.at(1));
  if (!right) s.cluster.wrong("a training step among survivors failed");
}

bool matches(const Point& point, const internal::net::Packet& packet,
             std::set<std::pair<WorkerId, uint64_t>>& calls, WorkerId caller) {
  if (const auto* call = std::get_if<internal::net::Call>(&packet)) {
    if (call->method != internal::net::method_id(point.method)) return false;
    if (call->id) calls.emplace(caller, call->id);
    return !point.reply;
  }
  const auto* reply = std::get_if<internal::net::Reply>(&packet);
  return reply && point.reply && calls.contains({caller, reply->id});
}

void dies_at(const Point& point, Body body, uint64_t seed) {
  INFO(point.name << ", seed " << seed);
  heard = {};
  Plan plan;
  plan.seed = seed;
  plan.workers = 4;
  plan.links = {.delay = 1ms, .jitter = seed ? 1ms : 0ms};
  plan.late_turns = seed % 3;
  plan.latest_turn = 1ms;
  Cluster cluster(plan, hosted());
  Process& victim = cluster.process(point.victim);
  std::set<std::pair<WorkerId, uint64_t>> calls;  // of the method
  int seen = 0;
  cluster.watch([&](Moment moment, Process& from, Process& to, const internal::net::Packet* packet) {
    const bool call = std::holds_alternative<internal::net::Call>(*packet);
    const bool match = matches(point, *packet, calls, (call ? from : to).id);
    if (!match || moment != point.moment || &(moment == Moment::sending ? from : to) != &victim) return;
    if (++seen != point.count) return;
    heard.died = cluster.now();
    cluster.crash(victim, seed % 2 ? internal::net::InFlight::lost : internal::net::InFlight::arrives);
  });
  start(cluster, cluster.process(0), body, seed);
  while (cluster.process(0).programs && cluster.step()) {
  }
  REQUIRE(heard.died);
  REQUIRE(heard.error);
  INFO(heard.error->what());
  CHECK(heard.error->kind() == ErrorKind::disconnected);
  CHECK(heard.error->worker() == victim.name);
  CHECK(*heard.told - *heard.died < 2s);
  while (cluster.now() - *heard.told < 4s && cluster.step()) {
  }
  cluster.check_nothing_left();
  start(cluster, cluster.process(0), new_step, seed);
  cluster.settle();
  cluster.check_nothing_left();
  REQUIRE(cluster.failure().value_or("") == "");
}

struct Quiet {
  Quiet() { internal::log::set_level(internal::log::Level::off); }
  ~Quiet() { internal::log::set_level(internal::log::Level::warning); }
};

}  // namespace

TEST_CASE(
    "a worker that dies at any of 23 points of a training step is named, and leaves nothing on the others") {
  Quiet quiet;
  for (const Point& point : kTraining)
    for (uint64_t seed = 0; seed < 12; ++seed) dies_at(point, training, seed);
}

TEST_CASE("a worker that dies while references are on their way is named, and leaves nothing on the others") {
  Quiet quiet;
  for (const Point& point : kReferences)
    for (uint64_t seed = 0; seed < 12; ++seed) dies_at(point, references, seed);
}

}  // namespace troupe::soak
