// Children of fork(), and what other threads of their parent held.
#include "core/base/fork.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/mutex.h"

using namespace troupe;
using internal::Lock;
using internal::Mutex;
using internal::RecursiveMutex;

namespace {

// How a child ends that does this, and what it says, while another thread has the mutex.
template <class M>
std::pair<int, std::string> in_child_of(M& mutex, bool held, const std::function<void()>& f) {
  std::atomic<int> step{0};
  std::thread other([&] {
    std::unique_lock lock(mutex, std::defer_lock);
    if (held) lock.lock();
    step = 1;
    while (step != 2) std::this_thread::yield();
  });
  while (step != 1) std::this_thread::yield();
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    f();
    ::_exit(0);
  }
  step = 2;
  other.join();
  ::close(ends[1]);
  std::string said;
  char part[500];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) said.append(part, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, said};
}

}  // namespace

TEST_CASE("a child that wants a mutex which another thread held at the fork ends in words") {
  const RefuseChildren refused;
  Mutex mutex;
  RecursiveMutex recursive;
  const auto ends_in_words = [](const std::pair<int, std::string>& end) {
    CHECK(end.first == 1);
    CHECK_THAT(end.second, Catch::Contains("a lock that a thread of its parent held") &&
                               Catch::Contains("is a child that fork() made"));
  };
  ends_in_words(in_child_of(mutex, true, [&] { std::lock_guard lock(mutex); }));
  ends_in_words(in_child_of(mutex, true, [&] { const Lock lock(mutex); }));
  ends_in_words(in_child_of(recursive, true, [&] { std::lock_guard lock(recursive); }));
  {  // by the thread itself, which has another number in the child
    std::optional<Lock> own(mutex);
    Mutex free;
    ends_in_words(in_child_of(free, false, [&] { const Lock lock(mutex); }));
    CHECK(in_child_of(free, false, [&] {
            own.reset();
            const Lock lock(mutex);
          }).first == 0);
  }
}

TEST_CASE("a child that has threads of its own waits for their mutexes, and for free ones not at all") {
  const RefuseChildren refused;
  Mutex mutex;
  CHECK(in_child_of(mutex, false, [&] {
          Lock lock(mutex);
          lock.unlock();
          std::atomic<bool> taken{false};
          std::thread own([&] {
            const Lock mine(mutex);
            taken = true;
            for (int i = 0; i < 1000; ++i) std::this_thread::yield();
          });
          while (!taken) std::this_thread::yield();
          lock.lock();
          lock.unlock();
          own.join();
        }) == std::pair(0, std::string()));
}
