#include "core/waiting.h"

#include <algorithm>

#include "core/frame.h"
#include "core/node.h"
#include "core/random.h"
#include "core/saved_tensor.h"
#include "core/undisturbed.h"

namespace troupe {
namespace {

constexpr Duration kSoon = std::chrono::microseconds(200);  // after the last wait: waits follow each other
constexpr Duration kLook = std::chrono::microseconds(20);

struct Expected {
  std::weak_ptr<Arrivals> from;
  const Arrivals* who = nullptr;
  TimePoint last_end{};
  int undisturbed = 0;
};

Expected& expected() {
  thread_local Expected e;
  return e;
}

// Of a thread that is in the middle of something, what it delivered would run inside that.
bool may_deliver() {
  return expected().undisturbed == 0 && !TensorStore::current() && !GeneratorWatch::current();
}

void look(const std::atomic<bool>& ready, TimePoint end) {
  end = std::min(end, Clock::system().now() + kLook);
  while (!ready.load(std::memory_order_acquire) && Clock::system().now() < end) continue;
}

}  // namespace

void expect_from(const std::shared_ptr<Arrivals>& from) {
  Expected& e = expected();
  if (e.who == from.get() && !e.from.expired()) return;
  e.from = from;
  e.who = from.get();
}

Undisturbed::Undisturbed() { ++expected().undisturbed; }
Undisturbed::~Undisturbed() { --expected().undisturbed; }

Waiting::Waiting(const std::atomic<bool>& ready, TimePoint end) {
  if (ready.load(std::memory_order_acquire) || frame().actor || frame().callback) return;
  if (Clock::system().now() - expected().last_end > kSoon) return;
  const auto from = expected().from.lock();
  if (!from) {
    look(ready, end);
    return;
  }
  if (!may_deliver()) return;
  Frame at;
  at.callback = true;
  FrameScope scope(at);
  GradMode recording(true);
  from->deliver_until(ready, end);
}

Waiting::~Waiting() { expected().last_end = Clock::system().now(); }

}  // namespace troupe
