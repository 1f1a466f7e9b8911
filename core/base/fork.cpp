#include "core/base/fork.h"

#include <pthread.h>
#include <unistd.h>

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
         " is a child that fork() made while its parent was a worker: it has none of the parent's threads, "
         "and "
         "what it sent would be taken for the parent's. Call exec or _exit() in the child, fork before "
         "launch(), or start workers with `troupe run`";
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

}  // namespace troupe
