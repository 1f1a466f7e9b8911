#include "core/async/waiting.h"

#include <algorithm>

#include "core/async/no_reentry.h"
#include "core/base/call_frame.h"
#include "core/base/generator.h"
#include "core/graph/node.h"
#include "core/graph/saved_tensor.h"

namespace troupe {
namespace {

constexpr Duration kSoon = std::chrono::microseconds(200);  // after the last wait: waits follow each other
constexpr Duration kLook = std::chrono::microseconds(20);

struct Expected {
  std::weak_ptr<PollSource> from;
  const PollSource* who = nullptr;
  TimePoint last_end{};
  int undisturbed = 0;
  LocalRunQueue* chores = nullptr;
};

Expected& expected() {
  thread_local Expected e;
  return e;
}

// Of a thread that is in the middle of something, what it delivered would run inside that.
bool may_deliver() {
  return expected().undisturbed == 0 && !TensorStore::current() && !GeneratorWatch::current();
}

void look(const Ready& ready, TimePoint end) {
  end = std::min(end, Clock::system().now() + kLook);
  while (!ready.is_set() && Clock::system().now() < end) continue;
}

void deliver(PollSource& from, const Ready& ready, TimePoint end, bool looks) {
  Frame at;
  at.callback = true;
  FrameScope scope(at);
  GradMode recording(true);
  LocalRunQueue* chores = expected().chores;
  from.deliver_until(ready, end, looks, chores);
  while (chores && !chores->empty()) chores->run();
}

}  // namespace

void expect_from(const std::shared_ptr<PollSource>& from) {
  if (frame().actor || frame().callback) return;  // nothing waits there
  Expected& e = expected();
  if (e.who == from.get() && !e.from.expired()) return;
  e.from = from;
  e.who = from.get();
}

ServeScope::ServeScope(LocalRunQueue* chores) { expected().chores = chores; }
ServeScope::~ServeScope() { expected().chores = nullptr; }

NoReentry::NoReentry() { ++expected().undisturbed; }
NoReentry::~NoReentry() { --expected().undisturbed; }

bool wait_until(const Ready& ready, TimePoint end) {
  if (!ready.is_set() && !frame().actor && !frame().callback) {
    const bool looks = Clock::system().now() - expected().last_end <= kSoon;
    if (const auto from = expected().from.lock()) {
      if (may_deliver()) deliver(*from, ready, end, looks);
    } else if (looks) {
      look(ready, end);
    }
  }
  const bool in_time = ready.wait_until(end);
  expected().last_end = Clock::system().now();
  return in_time;
}

}  // namespace troupe
