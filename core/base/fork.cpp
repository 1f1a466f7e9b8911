#include "core/base/fork.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "core/base/error.h"

namespace troupe {
namespace {

constinit std::atomic<int> refusing{0};

// The child's only thread, right after fork().
void in_child() {
  if (refusing.load(std::memory_order_relaxed) > 0)
    detail::forked_child.store(true, std::memory_order_relaxed);
}

std::string refusal(const char* what) {
  return "[" + std::string(what) + "] process " + std::to_string(::getpid()) +
         " is a child that fork() made while its parent was a worker, or had a job with checkpoints: it has "
         "none of the parent's threads, and what it sent or wrote would be taken for the parent's. Call exec "
         "or "
         "_exit() in the child, fork before launch(), or start workers with `troupe run`";
}

}  // namespace

RefuseChildren::RefuseChildren() {
  check_process("worker");
  static const int registered = ::pthread_atfork(nullptr, nullptr, &in_child);
  if (registered != 0) throw_error(ErrorKind::failed, "[fork] no memory for a handler of fork()");
  refusing.fetch_add(1, std::memory_order_relaxed);
}

RefuseChildren::~RefuseChildren() { refusing.fetch_sub(1, std::memory_order_relaxed); }

void detail::refuse_in_child(const char* what) { throw_invalid(refusal(what)); }

void end_refused_child(const char* what) {
  if (!in_refused_child()) return;
  const std::string text = "troupe: error: " + refusal(what) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(1);
}

namespace {

// Threads of the parent are none of this process. Before a thread notes that it has a mutex there is a
// moment. One that lets go takes its note back first, so who has ended and is still noted has it for ever.
template <class M>
bool stays_held(M& mutex, int& unknown) {
  constexpr int kMoment = 100'000;
#ifdef __GLIBC__
  const int& owner = mutex.native_handle()->__data.__owner;
  const int holder = __atomic_load_n(&owner, __ATOMIC_ACQUIRE);
  if (holder != 0)
    return ::syscall(SYS_tgkill, ::getpid(), holder, 0) != 0 && errno == ESRCH &&
           __atomic_load_n(&owner, __ATOMIC_ACQUIRE) == holder;
#endif
  return ++unknown > kMoment;
}

template <class M>
void lock_unless_it_stays_held(M& mutex) {
  constexpr const char* kWhat = "a lock that a thread of its parent held";
  if (internal::taken_as_held && internal::taken_as_held()) end_refused_child(kWhat);
  for (int unknown = 0; !mutex.try_lock(); ::sched_yield())
    if (stays_held(mutex, unknown)) end_refused_child(kWhat);
}

}  // namespace

void internal::lock_in_child(std::mutex& mutex) { lock_unless_it_stays_held(mutex); }
void internal::lock_in_child(std::recursive_mutex& mutex) { lock_unless_it_stays_held(mutex); }

}  // namespace troupe
