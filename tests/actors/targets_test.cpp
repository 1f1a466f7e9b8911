// Whom a call may be addressed to and what may be called; default deadlines; what is logged; messages without
// an answer.
#include <catch2/catch.hpp>

#include <algorithm>
#include <mutex>

#include "actors/worker/worker.h"
#include "core/base/log.h"
#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using namespace std::chrono_literals;

namespace {

int64_t twice(int64_t n) { return 2 * n; }

struct Where : Actor {
  std::string name() { return here().name(); }
  internal::actors::Member echo(internal::actors::Member m) { return m; }
  void fails() { throw std::runtime_error("first line\nsecond line"); }
  Task<int64_t> waits() {
    co_await opened.future();
    co_return 1;
  }
  static Tensor norm(const Tensor& t) { return ops::sqrt(ops::sum(t * t)); }
  static Task<int64_t> later(int64_t n) { co_return n + 1; }
  /// Passes a message on around the ring, until it has made its hops; the last one tells who waits.
  void hop(std::vector<RRef<Where>> ring, int64_t hops) {
    ++seen;
    if (hops > 0) ring[static_cast<size_t>(hops) % ring.size()].tell<&Where::hop>(ring, hops - 1);
  }
  int64_t hops() { return seen; }
  std::string describe(int64_t n, std::string text, std::optional<double> x, std::vector<bool> bits) {
    return std::to_string(n) + " " + text + " " + (x ? std::to_string(int(*x)) : "none") + " " +
           std::to_string(bits.size());
  }
  Promise<void> opened;
  int64_t seen = 0;
  static constexpr auto remote =
      methods<&Where::name, &Where::echo, &Where::fails, &Where::waits, &Where::norm, &Where::later, &twice,
              &Where::hop, &Where::hops, &Where::describe>;
};

// Everything logged while it is there.
struct Lines {
  Lines() {
    std::lock_guard lock(mutex);
    all.clear();
    internal::log::set_level(internal::log::Level::info);
    internal::log::set_sink([](internal::log::Level, const std::string& line) {
      std::lock_guard guard(mutex);
      all.push_back(line);
    });
  }
  ~Lines() {
    internal::log::set_sink(nullptr);
    internal::log::set_level(internal::log::Level::warning);
  }
  static int with(const std::string& text) {
    std::lock_guard lock(mutex);
    return static_cast<int>(std::count_if(all.begin(), all.end(),
                                          [&](const auto& l) { return l.find(text) != std::string::npos; }));
  }
  static inline std::mutex mutex;
  static inline std::vector<std::string> all;
};

}  // namespace

TEST_CASE("workers are addressed by name, by number, by description, and as oneself", "[calls]") {
  auto cluster = Cluster::in_process(3, hosting<Where>());
  const auto members = cluster->worker().members().all();
  REQUIRE(members.size() == 3);
  for (const auto& m : members) {
    INFO(m.name);
    CHECK(m.name == "w" + std::to_string(m.id));
    auto by_description = cluster->spawn<Where>(m);
    CHECK(by_description.call<&Where::name>().get() == m.name);
    CHECK(cluster->spawn<Where>(m.name).call<&Where::name>().get() == m.name);
    CHECK(cluster->spawn<Where>(m.id).call<&Where::name>().get() == m.name);
    // It goes there and back, and is the same.
    const internal::actors::Member back = by_description.call<&Where::echo>(m).get();
    CHECK(back == m);
    for (const auto& other : members) CHECK((back == other) == (other.id == m.id));
    CHECK(back.addresses == m.addresses);
  }
  CHECK(cluster->spawn<Where>(cluster->worker().id()).owner_name() == "w0");
  internal::actors::Member unknown = members[1];
  unknown.id = 17, unknown.name = "w17";
  CHECK_THAT(testing::invalid_text([&] { (void)cluster->spawn<Where>(unknown); }), Catch::Contains("w17"));
}

TEST_CASE("static and free functions are called like methods", "[calls]") {
  auto cluster = Cluster::in_process(2, hosting<Where>());
  for (const char* name : {"w0", "w1"}) {
    auto w = cluster->spawn<Where>(name);
    CHECK(w.call<&twice>(21).get() == 42);
    CHECK(w.call<&Where::later>(1).get() == 2);
    CHECK(w.call<&Where::norm>(tensor({3, 4}, float32)).get().item() == 5);
    CHECK(std::get<int64_t>(w.call_by_name("twice", {Value(int64_t{4})}).get().v) == 8);
    CHECK_THAT(testing::invalid_text([&] { w.call_by_name("twice", {}).get(); }),
               Catch::Contains("Where::twice]"));
  }
}

TEST_CASE(
    "calls by name: arguments of every kind, too few, too many, wrong ones, unknown methods, and errors",
    "[calls]") {
  auto cluster = Cluster::in_process(2, hosting<Where>());
  for (const char* name : {"w0", "w1"}) {
    const AnyRef w(cluster->spawn<Where>(name));
    const Value n(int64_t{4}), text(std::string("four")), x(4.5), bits(ValueList{Value(true), Value(false)});
    const auto called = [&](const std::string& method, ValueList args) {
      return internal::from_value<std::string>(w.call(method, std::move(args)).get());
    };
    CHECK(called("describe", {n, text, x, bits}) == "4 four 4 2");
    CHECK(called("describe", {n, text, Value(), Value(ValueList{})}) == "4 four none 0");
    CHECK(called("name", {}) == name);
    CHECK(internal::from_value<int64_t>(w.call("later", {n}).get()) == 5);  // a coroutine, a static one
    const auto refused = [&](const std::string& method, ValueList args, std::vector<std::string> says) {
      const Error e = error_of([&] { w.call(method, std::move(args)).get(); });
      CHECK(e.kind() == ErrorKind::invalid);
      for (const auto& part : says) CHECK_THAT(e.what(), Catch::Contains(part));
    };
    refused("describe", {n, text, x}, {"Where::describe] takes 4 arguments (int64, string,", "got 3"});
    refused("describe", {n, text, x, bits, n},
            {"Where::describe] takes 4 arguments (int64, string,", "got 5"});
    refused("name", {n}, {"Where::name] takes 0 arguments", "got 1"});
    refused("describe", {n, x, text, bits}, {"argument 2: expected string, got"});
    refused("describe", {n, text, text, bits}, {"argument 3: expected", "got string"});
    refused("describe", {n, text, x, Value(ValueList{n})}, {"argument 4"});
    refused("descripe", {n}, {"no such method", "name, echo, fails"});
    refused("", {}, {"no such method"});
    const Error thrown = error_of([&] { w.call("fails", {}).get(); });
    CHECK(thrown.kind() == ErrorKind::failed);
    CHECK_THAT(thrown.what(), Catch::Contains("first line\nsecond line") &&
                                  Catch::Contains("Where::fails on " + std::string(name) + " ("));
    CHECK(called("name", {}) == name);  // the actor goes on
  }
}

TEST_CASE("a future is no value: it can be neither sent inside something nor returned", "[calls]") {
  STATIC_REQUIRE_FALSE(Serializable<Future<int64_t>>);
  STATIC_REQUIRE_FALSE(Serializable<Promise<int64_t>>);
  STATIC_REQUIRE_FALSE(Serializable<Task<int64_t>>);
  STATIC_REQUIRE_FALSE(Serializable<int64_t*>);
  STATIC_REQUIRE(Serializable<int64_t>);
  STATIC_REQUIRE(Serializable<std::vector<Tensor>>);
  STATIC_REQUIRE(Serializable<RRef<Where>>);
  STATIC_REQUIRE(Serializable<internal::actors::Member>);
}

TEST_CASE(
    "the default deadline changes while the cluster runs, and calls in flight keep theirs, zero is none",
    "[calls]") {
  SimulatedCluster cluster(1, 2, hosting<Where>());
  auto w = cluster.here(0).spawn<Where>(1);
  cluster.settle();
  auto& caller = cluster.worker(0);
  CHECK(caller.timeout() == 60s);
  const auto early = w.call<&Where::waits>();
  caller.set_timeout(10ms);
  CHECK(caller.timeout() == 10ms);
  CHECK(caller.metrics()["timeout_ms"] == 10);
  CHECK(caller.metrics()["threads"] > 0);
  const Duration start = cluster.now();
  std::string text;
  for (int i = 0; i < 10; ++i) {
    const auto r = cluster.await(w.call<&Where::waits>());
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::deadline);
    if (i == 0) text = r.error().what();
    CHECK(r.error().what() == text);
  }
  CHECK(cluster.now() - start < 200ms);
  CHECK_FALSE(early.is_ready());
  caller.set_timeout(0s);
  const auto patient = w.call<&Where::waits>();
  CHECK(cluster.await(early).error().kind() == ErrorKind::deadline);
  CHECK(cluster.now() - start >= 59s);
  CHECK_FALSE(patient.is_ready());
  CHECK_THAT(testing::invalid_text([&] { caller.set_timeout(-1s); }), Catch::Contains("expected zero"));
}

TEST_CASE("what a method throws is logged where it runs, whole", "[calls]") {
  Lines lines;
  auto cluster = Cluster::in_process(2, hosting<Where>());
  for (const char* name : {"w0", "w1"}) {
    const Error e = error_of([&] { cluster->spawn<Where>(name).call<&Where::fails>().get(); });
    CHECK_THAT(e.message(), Catch::Contains("first line\nsecond line"));
    CHECK(lines.with(std::string("Where::fails on ") + name) == 1);
  }
  CHECK(lines.with("first line\nsecond line") == 2);
  CHECK(lines.with("called by w0") == 2);
}

TEST_CASE("a message without an answer goes twenty hops around a ring", "[calls]") {
  Lines lines;
  SimulatedCluster cluster(1, 4, hosting<Where>());
  {
    std::vector<RRef<Where>> ring;
    for (size_t w = 0; w < 4; ++w) ring.push_back(cluster.here(0).spawn<Where>(w));
    ring[0].tell<&Where::hop>(ring, 20);
    cluster.settle();
    int64_t seen = 0;
    for (auto& r : ring) seen += cluster.await(r.call<&Where::hops>()).value();
    CHECK(seen == 21);
    CHECK(lines.with("") == 0);
    ring[1].tell<&Where::fails>();  // logged as a failure, since nobody else will
    ring[0].tell<&Where::fails>();
    cluster.settle();
    CHECK(lines.with("one-way call failed") == 2);
  }
  cluster.settle();
  for (size_t w = 0; w < 4; ++w) CHECK(cluster.worker(w).metrics()["owned_objects"] == 0);
}
