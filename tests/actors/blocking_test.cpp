// Methods that wait for something else than a future.
#include <pthread.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <string_view>

#include "core/base/log.h"
#include "tests/support/two_workers.h"

using namespace troupe;

namespace {

// Waits for what another message, or nobody, does.
struct Gate : Actor {
  void listed() { pass(); }
  /// False at once in the pool: there it would hold up nobody.
  bool unlisted() {
    if (in_pool()) return false;
    pass();
    return true;
  }
  static bool in_pool() {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    return std::string_view(name).starts_with("caf.");
  }
  static void pass() {
    for (bool o = open; !o; o = open) open.wait(o);
  }
  void set(bool value) {
    open = value;
    open.notify_all();
  }
  static inline std::atomic<bool> open{true};
  static constexpr auto remote = methods<blocking<&Gate::listed>, &Gate::unlisted, &Gate::set>;
};

}  // namespace

TEST_CASE(
    "a method that is listed as blocking does not hold up its connection, however short it was so far") {
  testing::TwoWorkers two(hosting<Gate>());
  auto gate = two.spawn<Gate>(), other = two.spawn<Gate>();
  for (int i = 0; i < 20; ++i) gate.call<&Gate::listed>().get();
  other.call<&Gate::set>(false).get();
  const auto waits = gate.call<&Gate::listed>();
  CHECK_FALSE(waits.is_ready());
  other.call<&Gate::set>(true).get();
  waits.get();
}

TEST_CASE("a method that holds up its connection is named, and runs in the pool from then on") {
  static std::mutex mutex;
  static std::string line;
  testing::TwoWorkers two(hosting<Gate>());
  auto gate = two.spawn<Gate>(), other = two.spawn<Gate>();
  internal::log::set_sink([](internal::log::Level level, const std::string& text) {
    if (level != internal::log::Level::warning) return;
    std::lock_guard lock(mutex);
    line = text;
    Gate::open = true;
    Gate::open.notify_all();
  });
  do {  // short methods that were interrupted are in the pool for a while
    other.call<&Gate::set>(true).get();
    for (int i = 0; i < 20; ++i) gate.call<&Gate::unlisted>().get();
    other.call<&Gate::set>(false).get();
  } while (!gate.call<&Gate::unlisted>().get());
  internal::log::set_sink(nullptr);
  {
    std::lock_guard lock(mutex);
    CHECK_THAT(line, Catch::StartsWith("w1: ") && Catch::Contains("Gate::unlisted on w1 (") &&
                         Catch::Contains(" has held up the messages of w0 for ") &&
                         Catch::EndsWith("as blocking(&T::method)"));
  }
  other.call<&Gate::set>(false).get();
  CHECK_FALSE(gate.call<&Gate::unlisted>().get());
  Gate::open = true;
}
