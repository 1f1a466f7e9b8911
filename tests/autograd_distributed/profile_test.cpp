// Profiles: what they note of calls and passes, and of nothing else.
#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include <set>

#include "core/base/operator_span.h"
#include "tests/support/error_of.h"
#include "troupe/profile.h"
#include "troupe/troupe.h"

using namespace troupe;
using internal::actors::TraceEvent;
using testing::error_of;

namespace {

Promise<void> gate;

struct Scale : Actor {
  explicit Scale(double start) : w(full({2}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Task<Tensor> through(RRef<Scale> next, Tensor x) { co_return co_await next.call<&Scale::forward>(x); }
  Task<Tensor> waits(Tensor x) {
    co_await gate.future();
    co_return ops::mul(x, w);
  }
  int64_t number(int64_t n) { return n; }
  void note() {}
  void fails() { throw std::runtime_error("as asked"); }
  Tensor w;
  static constexpr auto remote =
      methods<&Scale::forward, &Scale::through, &Scale::waits, &Scale::number, &Scale::note, &Scale::fails>;
};

std::vector<TraceEvent> of(const Trace& trace, const std::string& mode, const std::string& name = {}) {
  std::vector<TraceEvent> out;
  for (const auto& e : trace.events())
    if (e.mode == mode && (name.empty() || e.name.find(name) != std::string::npos)) out.push_back(e);
  return out;
}
TraceEvent only(const Trace& trace, const std::string& mode, const std::string& name = {}) {
  const auto found = of(trace, mode, name);
  REQUIRE(found.size() == 1);
  return found[0];
}
bool within(const TraceEvent& inner, const TraceEvent& outer) {
  return outer.begin <= inner.begin && inner.begin <= inner.end && inner.end <= outer.end;
}

}  // namespace

TEST_CASE("a profile names every call by mode, method, source and destination, and when it ran") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0), b = cluster->spawn<Scale>("w2", 3.0),
       here = cluster->spawn<Scale>("w0", 5.0);
  const Tensor x = tensor({1, 2}, float32);
  NoGradGuard guard;
  a.call<&Scale::number>(1).get();  // before it
  Profile profile(*cluster);
  {
    ProfileSpan step(*cluster, "a step");
    a.call<&Scale::through>(b, x).get();
    here.call<&Scale::number>(1).get();
    a.remote<&Scale::forward>(x).to_here().get();
    CHECK(error_of([&] { b.call<&Scale::fails>().get(); }).kind() == ErrorKind::failed);
  }
  b.tell<&Scale::note>();
  b.call<&Scale::number>(2).get();  // behind it
  const Trace trace = profile.end();
  a.call<&Scale::number>(3).get();  // after it

  const auto span = only(trace, "span", "a step");
  const auto outer = only(trace, "call", "Scale::through"), handled = only(trace, "handle", "Scale::through");
  CHECK((outer.worker == 0 && outer.peer == 1));
  CHECK((handled.worker == 1 && handled.peer == 0));
  const auto nested = only(trace, "call", "Scale::forward"), last = of(trace, "handle", "Scale::forward")[1];
  CHECK((nested.worker == 1 && nested.peer == 2 && last.worker == 2));
  for (const auto& e : {outer, handled, nested, last, only(trace, "remote", "Scale::forward"),
                        only(trace, "call", "Scale::fails"), only(trace, "handle", "Scale::fails")})
    CHECK(within(e, span));
  CHECK(within(handled, outer));
  CHECK(within(nested, handled));
  CHECK(within(last, nested));
  CHECK(outer.key == handled.key);  // one call, seen from both sides
  CHECK(nested.key == last.key);
  CHECK(nested.key != outer.key);
  CHECK(nested.parent == outer.key);  // and which call led to which
  CHECK(outer.parent.empty());
  CHECK(outer.bytes == 8);
  CHECK(outer.shapes.empty());
  CHECK(only(trace, "tell", "Scale::note").key == only(trace, "handle", "Scale::note").key);
  CHECK(of(trace, "call", "Scale::number").size() == 2);
  const auto self = of(trace, "call", "Scale::number")[0];
  CHECK((self.worker == 0 && self.peer == 0));
  CHECK(trace.missed() == 0);
}

TEST_CASE("a result that goes straight is a message from the worker that made it to the one that uses it") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0), b = cluster->spawn<Scale>("w2", 3.0);
  NoGradGuard guard;
  a.ready().get(), b.ready().get();
  gate = {};
  Profile profile(*cluster);
  const auto y = b(a.call<&Scale::waits>(tensor({1, 2}, float32)));
  gate.set();
  CHECK(y.get().to_vector<float>() == std::vector<float>{6, 12});
  const Trace trace = profile.end();
  const auto sent = only(trace, "send", "call.argument"), got = only(trace, "receive", "call.argument");
  CHECK((sent.worker == 1 && sent.peer == 2 && got.worker == 2 && got.peer == 1));
  CHECK(sent.key == got.key);
  CHECK(sent.bytes == 8);
}

TEST_CASE("a profiled backward pass shows what was sent and received, within its time") {
  const bool shared = GENERATE(false, true);  // fast and exact
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0), b = cluster->spawn<Scale>("w2", 3.0);
  autograd::Context context(*cluster);
  Tensor x = tensor({1, 2}, float32);
  x.requires_grad_();
  Tensor y = b.call<&Scale::forward>(a.call<&Scale::forward>(x).get()).get();
  if (shared) y = ops::add(y, b.call<&Scale::forward>(y).get());
  Profile profile(*cluster, {.shapes = true});
  context.backward(y.sum());
  const Trace trace = profile.end();
  const auto total = only(trace, "backward");
  CHECK(total.worker == 0);
  CHECK(total.context == int64_t(context.id()));
  const auto sent = of(trace, "send", "grad.backward"), received = of(trace, "receive", "grad.backward");
  REQUIRE(sent.size() == (shared ? 6 : 4));
  REQUIRE(received.size() == sent.size());
  std::set<std::string> left, came;
  for (const auto& e : sent) {
    CHECK(within(e, total));
    CHECK_THAT(e.shapes, Catch::Contains("float32 [2]"));
    left.insert(e.key);
  }
  for (const auto& e : received) {
    CHECK(within(e, total));
    came.insert(e.key);
  }
  CHECK(left == came);
  CHECK(left.size() == sent.size());
  CHECK(of(trace, "send", "grad.reach").size() == (shared ? 6 : 0));
  for (const auto& e : of(trace, "part")) CHECK(within(e, total));
  for (const char* where : {"w1 (", "w2 ("}) CHECK_FALSE(of(trace, "part", where).empty());
}

TEST_CASE("profiles in each other have what began while they ran, and ending one twice is an error") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0);
  NoGradGuard guard;
  const Tensor x = tensor({1, 2}, float32);
  Profile outer(*cluster);
  a.call<&Scale::number>(1).get();
  {
    Profile inner(*cluster, {.shapes = true});
    a.call<&Scale::forward>(x).get();
    const Trace trace = inner.end();
    CHECK(of(trace, "call").size() == 1);
    CHECK_THAT(only(trace, "call", "Scale::forward").shapes, Catch::Contains("float32 [2]"));
    const Error twice = error_of([&] { (void)inner.end(); });
    CHECK(twice.kind() == ErrorKind::invalid);
    CHECK_THAT(twice.what(), Catch::Contains("has ended already"));
  }
  a.call<&Scale::note>().get();
  const Trace trace = outer.end();
  CHECK(of(trace, "call").size() == 3);
  CHECK(of(trace, "handle").size() == 3);
  for (const auto& e : trace.events()) CHECK(e.shapes.empty());  // it did not ask for them
  {
    Profile dropped(*cluster);
    a.call<&Scale::note>().get();
  }
  Profile empty(*cluster);
  CHECK(empty.end().events().empty());
  CHECK_THAT(error_of([] { ProfileSpan span("nowhere"); }).what(), Catch::Contains("no worker is active"));
}

TEST_CASE("parallel calls keep their events apart, and all are in the timeline, with arrows") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0), b = cluster->spawn<Scale>("w2", 2.0);
  Profile profile(*cluster);
  std::vector<Future<int64_t>> answers;
  for (int64_t i = 0; i < 100; ++i) answers.push_back((i % 2 ? a : b).call<&Scale::number>(i));
  for (auto& answer : answers) answer.get();
  const Trace trace = profile.end();
  std::set<std::string> keys;
  for (const auto& e : of(trace, "call")) keys.insert(e.key);
  CHECK(keys.size() == 100);
  const auto json = nlohmann::json::parse(trace.json());
  std::map<std::string, int> phases;
  std::map<int64_t, std::pair<double, int>> starts;  // numbers: Perfetto drops arrows of texts
  std::map<std::pair<int, int>, double> free_from;   // of a row
  for (const auto& e : json["traceEvents"]) {
    ++phases[e["ph"]];
    if (e["ph"] == "s") {
      REQUIRE(e["id"].is_number_integer());
      CHECK(starts.emplace(e["id"].get<int64_t>(), std::pair(double(e["ts"]), 0)).second);
    }
    if (e["ph"] == "X") {
      double& from = free_from[{e["pid"], e["tid"]}];
      CHECK(double(e["ts"]) >= from - 0.002);  // slices of a row do not overlap
      from = double(e["ts"]) + double(e["dur"]);
    }
  }
  CHECK(phases["X"] == 200);
  CHECK(phases["M"] == 3);
  CHECK(phases["s"] == 200);
  CHECK(phases["f"] == 200);
  for (const auto& e : json["traceEvents"])
    if (e["ph"] == "f") {
      auto& [from, ends] = starts.at(e["id"].get<int64_t>());
      CHECK(double(e["ts"]) >= from);
      CHECK(++ends == 1);
    }
  CHECK_THAT(trace.json(), Catch::Contains("call Scale::number w0 -> w1") &&
                               Catch::Contains("handle Scale::number w0 -> w2"));
}

TEST_CASE("operators are events of a profile that asks for them, and of no other") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0);
  NoGradGuard guard;
  const Tensor x = tensor({1, 2}, float32);
  Profile plain(*cluster);
  {
    Profile profile(*cluster, {.operators = true});
    (void)a.call<&Scale::forward>(x).get();
    (void)ops::add(x, x);  // of no worker's: the driver's thread
    const Trace trace = profile.end();
    const auto handled = only(trace, "handle", "Scale::forward"), applied = only(trace, "operator");
    CHECK(applied.name == "mul");
    CHECK(applied.worker == 1);
    CHECK(applied.parent == handled.key);
    CHECK(within(applied, handled));
  }
  CHECK(internal::operator_hooks == nullptr);
  (void)a.call<&Scale::forward>(x).get();
  const Trace trace = plain.end();
  CHECK(of(trace, "operator").empty());
  CHECK(of(trace, "handle", "Scale::forward").size() == 2);
}
