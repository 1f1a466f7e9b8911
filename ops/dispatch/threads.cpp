#include "ops/dispatch/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/base/error.h"
#include "core/base/thread.h"

namespace troupe::ops {
namespace {

constexpr int kMaxThreads = 1024;

void check(const char* what, int n) {
  if (n < 1 || n > kMaxThreads)
    throw_invalid(fmt::format("[threads] {} is {}, expected 1 to {}", what, n, kMaxThreads));
}

// The number in a variable of the environment; `otherwise` if it is not set.
int variable(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  int n = 0;
  const char* end = text + std::strlen(text);
  if (const auto [stop, error] = std::from_chars(text, end, n); error != std::errc{} || stop != end)
    throw_invalid(
        fmt::format("[threads] {} is \"{}\", expected a number from 1 to {}", name, text, kMaxThreads));
  check(name, n);
  return n;
}

std::atomic<int> asked_for{0};       // 0: nothing
std::atomic<int> workers_here{0};    // in this process
std::atomic<int> processes_here{1};  // on this host

}  // namespace

void set_num_threads(int n) {
  check("the number of threads", n);
  asked_for.store(n, std::memory_order_relaxed);
}

int num_threads() {
  if (const int n = asked_for.load(std::memory_order_relaxed)) return n;
  static const int from_environment = variable("TROUPE_NUM_THREADS", 0);
  if (from_environment) return from_environment;
  static const int cores = std::min(kMaxThreads, usable_cores()), said = variable("LOCAL_WORLD_SIZE", 0);
  const int share = cores / (said ? said : processes_here.load(std::memory_order_relaxed));
  return std::max(1, share / std::max(1, workers_here.load(std::memory_order_relaxed)));
}

}  // namespace troupe::ops

namespace troupe::internal {

void set_processes_here(int processes) {
  ops::processes_here.store(std::max(1, processes), std::memory_order_relaxed);
}

SharedCores::SharedCores(int workers) : workers_(workers) {
  ops::workers_here.fetch_add(workers, std::memory_order_relaxed);
}
SharedCores::~SharedCores() { ops::workers_here.fetch_sub(workers_, std::memory_order_relaxed); }

}  // namespace troupe::internal
