#include "actors/runtime/serial_runtime.h"

#include <algorithm>

namespace troupe::internal::actors {

namespace {

struct Queue {
  std::deque<Ref<Job>> jobs;
  bool due = false;  // has a turn coming
};
using QueuePtr = std::shared_ptr<Queue>;

}  // namespace

struct SerialRuntime::Core : std::enable_shared_from_this<Core> {
  Later later;
  std::deque<QueuePtr> ready;     // their turns come on this thread, now
  std::vector<QueuePtr> delayed;  // their turns are with the owner
  bool running = false;

  void post(const QueuePtr& queue, Ref<Job> job) {
    queue->jobs.push_back(std::move(job));
    if (!std::exchange(queue->due, true)) give_turn(queue);
  }

  void give_turn(const QueuePtr& queue) {
    if (later) {
      delayed.push_back(queue);  // first: the owner might call it inside
      if (later([core = shared_from_this(), queue] { core->turn_came(queue); })) return;
      std::erase(delayed, queue);
    }
    ready.push_back(queue);
    run_ready();
  }

  void turn_came(const QueuePtr& queue) {
    const auto at = std::find(delayed.begin(), delayed.end(), queue);
    if (at == delayed.end()) return;  // finish() has been faster
    delayed.erase(at);
    ready.push_back(queue);
    run_ready();
  }

  void run_ready() {
    if (running) return;
    running = true;
    while (!ready.empty()) {
      const QueuePtr queue = std::move(ready.front());
      ready.pop_front();
      {
        const Ref<Job> job = std::move(queue->jobs.front());
        queue->jobs.pop_front();
        job->run();
      }
      if (queue->jobs.empty())
        queue->due = false;
      else
        give_turn(queue);
    }
    running = false;
  }
};

class SerialRuntime::Box final : public Mailbox {
 public:
  explicit Box(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  void post(Ref<Job> job, DispatchTarget) override { core_->post(queue_, std::move(job)); }

 private:
  std::shared_ptr<Core> core_;
  QueuePtr queue_ = std::make_shared<Queue>();
};

SerialRuntime::SerialRuntime(Later later) : core_(std::make_shared<Core>()) {
  core_->later = std::move(later);
}

SerialRuntime::~SerialRuntime() { finish(); }

std::unique_ptr<Mailbox> SerialRuntime::make_mailbox() { return std::make_unique<Box>(core_); }

void SerialRuntime::finish() {
  core_->later = nullptr;
  for (auto& queue : std::exchange(core_->delayed, {})) core_->ready.push_back(std::move(queue));
  core_->run_ready();
}

size_t SerialRuntime::waiting() const {
  size_t n = 0;
  for (const auto& queue : core_->delayed) n += queue->jobs.size();
  for (const auto& queue : core_->ready) n += queue->jobs.size();
  return n;
}

}  // namespace troupe::internal::actors
