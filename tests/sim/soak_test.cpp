// Simulated clusters, one seed after the other. ./dev soak sim runs as many as wanted, or one of them again.
#include <catch2/catch.hpp>

#include "core/base/log.h"
#include "tests/soak/plan.h"
#include "tests/soak/planted.h"
#include "tests/soak/run.h"

using namespace troupe;

namespace {

soak::Report holds(uint64_t seed) {
  const soak::Report r = soak::run(seed);
  if (!r.failure) return r;
  const soak::Report again = soak::run(seed, true);
  std::string text = soak::describe(soak::plan_of(seed));
  const size_t from = again.trace.size() > 60 ? again.trace.size() - 60 : 0;
  for (size_t i = from; i < again.trace.size(); ++i) text += again.trace[i] + "\n";
  FAIL(text << "seed " << seed << ": " << *r.failure << "\nagain: ./dev soak sim --seed " << seed);
  return r;
}

// Lost calls are what these tests are about.
struct Quiet {
  Quiet() { internal::log::set_level(internal::log::Level::off); }
  ~Quiet() { internal::log::set_level(internal::log::Level::warning); }
};

}  // namespace

TEST_CASE(
    "5,000 clusters in which messages are late and lost, links break and workers die: all that must hold "
    "does") {
  Quiet quiet;
  uint64_t calls = 0, errors = 0, faults = 0;
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    const soak::Report r = holds(seed);
    calls += r.calls, errors += r.errors, faults += r.faults;
  }
  CHECK(calls > 50'000);  // it is not because nothing happened
  CHECK(errors > 3'000);
  CHECK(faults > 1'000);
}

TEST_CASE("passes in which any one step fails end with its error, in 500 clusters, and leave nothing") {
  Quiet quiet;
  uint64_t passes = 0, failed = 0, exact = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const soak::Report r = soak::planted(seed);
    if (r.failure) FAIL(*r.failure << "\nagain: ./dev soak sim --planted --seed " << seed);
    passes += r.calls, failed += r.errors, exact += r.faults;
  }
  CHECK(passes - failed > 700);  // it is not because nothing happened
  CHECK(failed > 5'000);
  CHECK(exact > 200);
  CHECK(passes - failed - exact > 50);  // they went the fast way
}

TEST_CASE("one seed gives one run: the same messages at the same times, and and another one another") {
  Quiet quiet;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    const soak::Report once = soak::run(seed), again = soak::run(seed, true);
    REQUIRE(once.hash == again.hash);
    REQUIRE(once.events == again.events);
    REQUIRE(once.hash != soak::run(seed + 1000).hash);
  }
}

TEST_CASE("seeds that found defects hold") {
  Quiet quiet;
  const std::vector<uint64_t> seeds{
      325,  // a pass that another worker than the context's started: two that it led through lost each other
      660640,  // handing on a reference to an object that went with a lost worker: the error named none
      110228,  // such a pass met a worker that had lost the context's originator: the error did not say so
  };
  for (uint64_t seed : seeds) holds(seed);
}
