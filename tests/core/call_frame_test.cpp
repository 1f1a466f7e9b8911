// The small things: frames, clocks, element types, log lines.
#include "core/base/call_frame.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "core/base/log.h"
#include "core/base/repeats.h"
#include "core/tensor/dtype.h"
#include "tests/support/error_of.h"
#include "tests/support/stands_for.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<std::pair<internal::log::Level, std::string>> lines;

// What f writes to the process's standard error.
template <class F>
std::string standard_error(F f) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file);
  std::fflush(stderr);
  const int kept = dup(2);
  dup2(fileno(file), 2);
  f();
  std::fflush(stderr);
  dup2(kept, 2);
  close(kept);
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a frame scope sets the thread's frame and puts the old one back, also on a throw") {
  CHECK(frame().context == 0);
  CHECK(frame().actor == nullptr);
  CHECK(frame().deadline == TimePoint::max());
  auto* const worker = testing::stands_for<internal::actors::Worker>();
  {
    const CallFrameScope outer(CallFrame{.worker = worker, .context = 1});
    try {
      const CallFrameScope inner(CallFrame{.context = 2, .deadline = TimePoint()});
      CHECK(frame().context == 2);
      CHECK(frame().worker == nullptr);
      throw 1;
    } catch (int) {
    }
    CHECK(frame().context == 1);
    CHECK(frame().worker == worker);
    CHECK(frame().deadline == TimePoint::max());
    uint64_t elsewhere = 99;
    std::thread([&] { elsewhere = frame().context; }).join();
    CHECK(elsewhere == 0);
  }
  CHECK(frame().worker == nullptr);
}

TEST_CASE("only the handler of an actor's message may not block") {
  check_may_block("x");
  {
    const CallFrameScope worker(CallFrame{.worker = testing::stands_for<internal::actors::Worker>()});
    check_may_block("x");
  }
  const CallFrameScope actor(CallFrame{.actor = testing::stands_for<internal::actors::ActorCell>()});
  CHECK_THAT(invalid_text([] { check_may_block("wait"); }),
             Catch::StartsWith("[wait] would block inside an actor (?)"));
}

TEST_CASE("the manual clock moves only when told, and the system clock never goes back") {
  ManualClock manual;
  const Clock& clock = manual;
  const TimePoint start = clock.now();
  CHECK(clock.now() == start);
  manual.advance(std::chrono::milliseconds(5));
  CHECK(clock.now() - start == std::chrono::milliseconds(5));
  std::thread([&] { manual.advance(Duration(1)); }).join();
  CHECK((clock.now() - start).count() == 5'000'001);
  TimePoint last = Clock::system().now();
  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = Clock::system().now();
    REQUIRE(now >= last);
    last = now;
  }
  CHECK(&Clock::system() == &Clock::system());
}

TEST_CASE("element types have sizes, names and C++ types that agree") {
  const char* names[] = {"float32", "float64", "int64", "bool", "bfloat16", "float16", "int32", "uint8"};
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType t = static_cast<DType>(i);
    CHECK(name(t) == names[i]);
    visit_dtype(t, [&](auto zero) {
      CHECK(sizeof(zero) == item_size(t));
      CHECK(dtype_of<decltype(zero)> == t);
      using T = decltype(zero);
      CHECK((std::is_floating_point_v<T> || is_half(t)) == is_floating(t));
      CHECK((std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) == is_half(t));
    });
  }
}

TEST_CASE("a log sink receives every line, of every level, until it is taken away") {
  lines.clear();
  internal::log::set_sink(
      [](internal::log::Level level, const std::string& text) { lines.emplace_back(level, text); });
  internal::log::debug("one {}");
  internal::log::info("two");
  internal::log::warning("three");
  internal::log::error("four");
  internal::log::set_sink(nullptr);
  internal::log::debug("not seen");
  using enum internal::log::Level;
  CHECK(lines == std::vector<std::pair<internal::log::Level, std::string>>{
                     {debug, "one {}"}, {info, "two"}, {warning, "three"}, {error, "four"}});
}

TEST_CASE("log lines go to standard error as they are, from the set level on") {
  internal::log::set_level(internal::log::Level::info);
  CHECK(standard_error([] {
          internal::log::debug("hidden");
          internal::log::info("progress {} %s");
          internal::log::error("broken");
        }) == "troupe info: progress {} %s\ntroupe error: broken\n");
  internal::log::set_level(internal::log::Level::off);
  CHECK(standard_error([] { internal::log::error("hidden"); }).empty());
  internal::log::set_level(internal::log::Level::warning);
}

TEST_CASE("lines that are the same are counted: at the 10th, the 100th, after a minute, and at the end") {
  using std::chrono::seconds;
  internal::log::Repeats log;
  const TimePoint start{};
  CHECK(log.line("a", start) == "a");
  CHECK(log.line("b", start) == "b");
  for (int i = 2; i < 10; ++i) CHECK(log.line("a", start).empty());
  CHECK(log.line("a", start) == "a\n  [10 times so far]");
  CHECK(log.line("b", start + seconds(59)).empty());
  CHECK(log.line("b", start + seconds(61)) == "b\n  [3 times so far]");
  CHECK(log.line("b", start + seconds(62)).empty());
  for (int i = 11; i < 100; ++i) CHECK(log.line("a", start).empty());
  CHECK(log.line("a", start) == "a\n  [100 times so far]");
  CHECK(log.rest() == std::vector<std::string>{"b\n  [4 times so far]"});
  CHECK(log.line("a", start) == "a");
}

TEST_CASE("warnings and errors that are the same are counted, each level for itself") {
  CHECK(standard_error([] {
          for (int i = 0; i < 12; ++i) internal::log::warning("the same");
          internal::log::error("the same");
          for (int i = 0; i < 3; ++i) internal::log::warning_once("once");
          internal::log::set_sink(nullptr);  // as the end of the process: what is left
        }) ==
        "troupe warning: the same\ntroupe warning: the same\n  [10 times so far]\ntroupe error: the same\n"
        "troupe warning: once\ntroupe warning: the same\n  [12 times so far]\n");
}
