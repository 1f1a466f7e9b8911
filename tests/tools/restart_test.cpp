// Which ends of a job are followed by another start, and how often.
#include "tools/launch/restart.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <random>

#include "tools/launch/ending.h"

using namespace troupe::tools;

namespace {

// All that an attempt can be, with every code that means something, and some that do not.
std::vector<Attempt> all_attempts() {
  std::vector<Attempt> all;
  for (const int code : {0, 1, 2, 3, 4, 5, 6, 7, 130, 137, 143, 255})
    for (int flags = 0; flags < 32; ++flags)
      all.push_back(
          {code, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0, (flags & 16) != 0});
  return all;
}

bool reason(const Attempt& a, bool met_before) {
  if (a.stopped || a.done) return false;
  return a.killed || a.code == 4 || (a.code == 3 && (a.met || met_before));
}

}  // namespace

TEST_CASE("a restart follows what it may mend, for each kind of end after each other one", "[launch]") {
  for (const int64_t most : {0, 1, 2, 5})
    for (const Attempt& first : all_attempts())
      for (const Attempt& second : all_attempts()) {
        RestartPolicy policy(most);
        const bool one = policy.take(first);
        REQUIRE(one == (most > 0 && reason(first, false)));
        REQUIRE(policy.used() == one);
        if (!one) continue;
        const bool two = reason(second, first.met) && (second.committed || most > 1);
        REQUIRE(policy.restarts(second) == two);
        REQUIRE(policy.take(second) == two);
        if (two) REQUIRE(policy.used() == (second.committed ? 1 : 2));
      }
}

TEST_CASE("restarts without a checkpoint between them are at most as many as allowed, in any sequence",
          "[launch]") {
  std::minstd_rand random(7);
  const auto attempts = all_attempts();
  for (int run = 0; run < 10'000; ++run) {
    const auto most = static_cast<int64_t>(random() % 4);
    RestartPolicy policy(most);
    int64_t in_a_row = 0;
    for (int i = 0; i < 20; ++i) {
      const Attempt& attempt = attempts[random() % attempts.size()];
      if (attempt.committed) in_a_row = 0;
      if (!policy.take(attempt)) break;
      REQUIRE(++in_a_row <= most);
      REQUIRE(policy.used() == in_a_row);
    }
  }
}

TEST_CASE(
    "a signal that asks for the end is not one that kills, whether the process or a shell around it tells",
    "[launch]") {
  for (const int signal : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGUSR1}) {
    CHECK(Ending{1, 100, signal, "", ""}.killed());
    CHECK(Ending{1, 100, (128 + signal) << 8, "", ""}.killed());
  }
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
    CHECK_FALSE(Ending{1, 100, signal, "", ""}.killed());
    CHECK_FALSE(Ending{1, 100, (128 + signal) << 8, "", ""}.killed());
  }
  for (const int code : {0, 1, 4, 127, 128, 255}) CHECK_FALSE(Ending{1, 100, code << 8, "", ""}.killed());
}
