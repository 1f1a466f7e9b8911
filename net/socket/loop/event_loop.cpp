#include "net/socket/loop/event_loop.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/out_of_memory.h"
#include "core/base/thread.h"

namespace troupe::internal::net {
namespace {

// What user code throws out of a callback must not end the thread that all connections depend on.
template <class F>
void guarded(F&& f) {
  try {
    f();
  } catch (const std::bad_alloc&) {
    end_without_memory();
  } catch (...) {
    log::error(fmt::format("[net] a callback threw: {}", current_error().what()));
  }
}

}  // namespace

EventLoop::EventLoop(const std::string& thread_name)
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event e{};
  e.events = EPOLLIN;
  if (!epoll_ || !event_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_.get(), &e) != 0)
    throw_error(ErrorKind::failed, fmt::format("[net] cannot make an event loop: {}", errno_text(errno)));
  // Under the lock, so that the thread sees thread_ set.
  std::lock_guard lock(mutex_);
  thread_ = start_thread("net", [this] { run(); });
  pthread_setname_np(thread_.native_handle(), thread_name.c_str());
}

EventLoop::~EventLoop() { stop(); }

void EventLoop::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake();
  }
  if (thread_.joinable()) thread_.join();
  // What is left may hold the last reference to somebody: let go outside the lock.
  std::vector<Task> tasks;
  decltype(timers_) timers;
  decltype(handlers_) handlers;
  std::lock_guard lock(mutex_);
  tasks.swap(tasks_), timers.swap(timers_), handlers.swap(handlers_);
  timer_times_.clear();  // cancel() may still come
}

void EventLoop::wake() {
  if (asleep_until_ == TimePoint::min()) return;
  asleep_until_ = TimePoint::min();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);  // full: already awake
}

uint64_t EventLoop::watch(int fd, uint32_t events, Handler handler) {
  std::lock_guard lock(mutex_);
  const uint64_t id = next_id_++;
  epoll_event e{};
  e.events = events;
  e.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) != 0)
    throw_error(ErrorKind::failed, fmt::format("[net] cannot watch a descriptor: {}", errno_text(errno)));
  handlers_.emplace(id, std::make_shared<Handler>(std::move(handler)));
  return id;
}

void EventLoop::change(uint64_t id, int fd, uint32_t events) {
  epoll_event e{};
  e.events = events;
  e.data.u64 = id;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &e);
}

void EventLoop::unwatch(uint64_t id, int fd) {
  std::shared_ptr<Handler> let_go;  // may hold the last reference to its owner
  std::lock_guard lock(mutex_);
  const auto it = handlers_.find(id);
  if (it == handlers_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  let_go = std::move(it->second);
  handlers_.erase(it);
}

void EventLoop::post(Task task) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  wake();
}

uint64_t EventLoop::at(TimePoint when, Task task) {
  std::lock_guard lock(mutex_);
  if (stopping_) return 0;
  const uint64_t id = next_id_++;
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_.emplace(id, when);
  if (when < asleep_until_) wake();
  return id;
}

void EventLoop::cancel(uint64_t timer) {
  Task let_go;
  std::lock_guard lock(mutex_);
  const auto it = timer_times_.find(timer);
  if (it == timer_times_.end()) return;
  const auto entry = timers_.find({it->second, timer});
  let_go = std::move(entry->second);
  timers_.erase(entry);
  timer_times_.erase(it);
}

bool EventLoop::run_tasks() {
  std::vector<Task> tasks;
  bool stopping;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    stopping = stopping_;
  }
  for (auto& t : tasks) {
    guarded(t);
    t = nullptr;
  }
  return !stopping;
}

// Returns the milliseconds to sleep, and notes that this thread sleeps.
int EventLoop::run_timers() {
  for (;;) {
    Task task;
    {
      std::lock_guard lock(mutex_);
      if (!tasks_.empty() || stopping_) return 0;
      if (timers_.empty()) {
        asleep_until_ = TimePoint::max();
        return -1;
      }
      const auto first = timers_.begin();
      const auto left = first->first.first - Clock::system().now();
      if (left > Duration::zero()) {
        asleep_until_ = first->first.first;
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
        return static_cast<int>(std::min<int64_t>(ms, 1 << 30));
      }
      task = std::move(first->second);
      timer_times_.erase(first->first.second);
      timers_.erase(first);
    }
    guarded(task);
  }
}

void EventLoop::run() {
  { std::lock_guard lock(mutex_); }
  epoll_event events[64];
  while (run_tasks()) {
    int ms = run_timers();
    if (ms != 0 && idle_ && idle_()) ms = 0;
    const int n = epoll_wait(epoll_.get(), events, 64, ms);
    {
      std::lock_guard lock(mutex_);
      asleep_until_ = TimePoint::min();
    }
    for (int i = 0; i < n; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == 0) {
        uint64_t count;
        [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
        continue;
      }
      std::shared_ptr<Handler> handler;
      {
        std::lock_guard lock(mutex_);
        if (const auto it = handlers_.find(id); it != handlers_.end()) handler = it->second;
      }
      if (handler) guarded([&] { (*handler)(events[i].events); });
    }
  }
}

}  // namespace troupe::internal::net
