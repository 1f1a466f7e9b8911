// A thread that waits for descriptors, times and posted tasks, and runs what belongs to them.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "net/socket/loop/sockets.h"

namespace troupe::internal::net {

/// All members are thread-safe; tasks and handlers run on the loop's thread, one at a time. A loop with
/// nothing to do sleeps without waking up.
class EventLoop {
 public:
  using Task = std::function<void()>;
  using Handler = std::function<void(uint32_t events)>;

  /// `thread_name`: at most 15 bytes. Throws `failed` if the system has no descriptors left.
  explicit EventLoop(const std::string& thread_name);
  ~EventLoop();  ///< stop()
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `handler` while `fd` is ready for `events` (EPOLLIN, ...). Returns a number, never 0, for the
  /// calls below. Throws `failed` if the system refuses.
  uint64_t watch(int fd, uint32_t events, Handler handler);
  void change(uint64_t id, int fd, uint32_t events);
  /// Before the descriptor is closed. The handler may still be running on the loop's thread, once.
  void unwatch(uint64_t id, int fd);

  /// Runs after what was posted before. Dropped once stopped.
  void post(Task task);
  /// Returns a number for cancel().
  uint64_t at(TimePoint when, Task task);
  void cancel(uint64_t timer);

  /// Called each time before the thread would sleep; it does not if the answer is true: then it looks at
  /// descriptors, times and tasks, and asks again. On the loop's thread.
  void set_idle(std::function<bool()> before_sleep) { idle_ = std::move(before_sleep); }

  bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  /// Runs what was posted before, then joins the thread. Not from the loop's thread.
  void stop();

 private:
  void run();
  bool run_tasks();
  int run_timers();
  void wake();

  Descriptor epoll_, event_;
  std::function<bool()> idle_;
  internal::Mutex mutex_;
  std::vector<Task> tasks_;
  std::map<std::pair<TimePoint, uint64_t>, Task> timers_;
  std::unordered_map<uint64_t, TimePoint> timer_times_;
  std::unordered_map<uint64_t, std::shared_ptr<Handler>> handlers_;
  uint64_t next_id_ = 1;
  TimePoint asleep_until_ = TimePoint::min();  // min: awake
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe::internal::net
