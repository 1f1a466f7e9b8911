#include "core/async/waiting.h"

#include <algorithm>
#include <vector>

#include "core/async/no_reentry.h"
#include "core/base/call_frame.h"
#include "core/base/generator.h"
#include "core/graph/node.h"
#include "core/graph/saved_tensor.h"

namespace troupe {
namespace {

constexpr Duration kSoon = std::chrono::microseconds(200);  // after the last wait: waits follow each other
constexpr Duration kPollTime = std::chrono::microseconds(20);

struct Expected {
  std::weak_ptr<PollSource> from;
  const PollSource* who = nullptr;
  TimePoint last_end{};
  int undisturbed = 0;
  LocalRunQueue* run_queue = nullptr;
  std::vector<WaitedWorld*> worlds;
};

Expected& expected() {
  thread_local Expected e;
  return e;
}

// Of a thread that is in the middle of something, what it delivered would run inside that.
bool may_deliver() {
  return expected().undisturbed == 0 && !TensorStore::current() && !GeneratorWatch::current();
}

void poll(const Ready& ready, TimePoint end) {
  end = std::min(end, Clock::system().now() + kPollTime);
  while (!ready.is_set() && Clock::system().now() < end) continue;
}

void deliver(PollSource& from, const Ready& ready, TimePoint end, bool polls) {
  CallFrame at;
  at.callback = true;
  CallFrameScope scope(at);
  GradMode recording(true);
  LocalRunQueue* run_queue = expected().run_queue;
  from.deliver_until(ready, end, polls, run_queue);
  while (run_queue && !run_queue->empty()) run_queue->run();
}

}  // namespace

void expect_from(const std::shared_ptr<PollSource>& from) {
  if (frame().actor || frame().callback) return;  // nothing waits there
  Expected& e = expected();
  if (e.who == from.get() && !e.from.expired()) return;
  e.from = from;
  e.who = from.get();
}

ServeScope::ServeScope(LocalRunQueue* run_queue) { expected().run_queue = run_queue; }
ServeScope::~ServeScope() { expected().run_queue = nullptr; }

WorldScope::WorldScope(WaitedWorld& world) : world_(world) { expected().worlds.push_back(&world); }
WorldScope::~WorldScope() { std::erase(expected().worlds, &world_); }

const Clock& clock_of_waits() {
  const auto& worlds = expected().worlds;
  return worlds.empty() ? Clock::system() : worlds.back()->clock();
}

NoReentry::NoReentry() { ++expected().undisturbed; }
NoReentry::~NoReentry() { --expected().undisturbed; }

bool wait_until(const Ready& ready, TimePoint end) {
  if (const auto& worlds = expected().worlds; !worlds.empty()) return worlds.back()->run_until(ready, end);
  if (!ready.is_set() && !frame().actor && !frame().callback) {
    const bool polls = Clock::system().now() - expected().last_end <= kSoon;
    if (const auto from = expected().from.lock()) {
      if (may_deliver()) deliver(*from, ready, end, polls);
    } else if (polls) {
      poll(ready, end);
    }
  }
  const bool in_time = ready.wait_until(end);
  expected().last_end = Clock::system().now();
  return in_time;
}

}  // namespace troupe
