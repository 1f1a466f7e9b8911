// A mutex that clang knows: with -Wthread-safety it reports at compile time what reaches a member without the
// mutex that guards it. For other compilers the macros are empty. One that a thread held while another one
// forked is never free in the child, which has not that thread: whoever wants it there ends in words.
#pragma once
#include <condition_variable>
#include <mutex>

#include "core/base/fork.h"

#if defined(__clang__) && !defined(__CUDACC__)
#define TROUPE_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define TROUPE_THREAD_SAFETY(attribute)
#endif

/// Before the name of a class: it is a mutex; it holds one while it lives.
#define TROUPE_CAPABILITY(kind) TROUPE_THREAD_SAFETY(capability(kind))
#define TROUPE_SCOPED_CAPABILITY TROUPE_THREAD_SAFETY(scoped_lockable)
/// Behind a member: only who holds the mutex may read or write it.
#define TROUPE_GUARDED_BY(mutex) TROUPE_THREAD_SAFETY(guarded_by(mutex))
/// Behind a function or lambda: its caller holds the mutexes.
#define TROUPE_REQUIRES(...) TROUPE_THREAD_SAFETY(requires_capability(__VA_ARGS__))
/// Behind a function: its caller does not hold the mutexes, since it takes them, or calls what others wrote.
#define TROUPE_EXCLUDES(...) TROUPE_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/// Behind a function: it takes the mutexes, or lets go of them; without arguments, `this` is the mutex.
#define TROUPE_ACQUIRE(...) TROUPE_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define TROUPE_TRY_ACQUIRE(...) TROUPE_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
#define TROUPE_RELEASE(...) TROUPE_THREAD_SAFETY(release_capability(__VA_ARGS__))
/// Behind a handler of pthread_atfork(): a mutex is taken by one of them, and let go of by another.
#define TROUPE_AROUND_FORK TROUPE_THREAD_SAFETY(no_thread_safety_analysis)

namespace troupe::internal {

template <class Native>
class TROUPE_CAPABILITY("mutex") BasicMutex {
 public:
  BasicMutex() = default;
  BasicMutex(const BasicMutex&) = delete;
  void lock() TROUPE_ACQUIRE() {
    if (in_refused_child()) [[unlikely]]
      lock_in_child(mutex_);
    else
      mutex_.lock();
  }
  bool try_lock() TROUPE_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() TROUPE_RELEASE() { mutex_.unlock(); }

 private:
  friend class Lock;
  Native mutex_;
};
using Mutex = BasicMutex<std::mutex>;
/// For what gets to itself again.
using RecursiveMutex = BasicMutex<std::recursive_mutex>;

/// Holds a mutex until the end of its scope, but for what stands between unlock() and lock().
class TROUPE_SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(Mutex& mutex) TROUPE_ACQUIRE(mutex) : lock_(mutex.mutex_, std::defer_lock) { take(); }
  ~Lock() TROUPE_RELEASE() {}
  Lock(const Lock&) = delete;
  void lock() TROUPE_ACQUIRE() { take(); }
  void unlock() TROUPE_RELEASE() { lock_.unlock(); }

  /// For std::condition_variable, whose condition is a lambda that says TROUPE_REQUIRES:
  ///   idle_.wait(lock.native(), [&]() TROUPE_REQUIRES(mutex_) { return jobs_ == 0; });
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  void take() {
    if (!in_refused_child()) [[likely]]
      return lock_.lock();
    lock_in_child(*lock_.mutex());
    lock_ = std::unique_lock(*lock_.mutex(), std::adopt_lock);
  }
  std::unique_lock<std::mutex> lock_;
};

}  // namespace troupe::internal
