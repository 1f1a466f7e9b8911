#include "core/base/call_frame.h"

#include "core/base/error.h"

namespace troupe {

CallFrame& frame() {
  thread_local CallFrame current;
  return current;
}

void check_may_block(const char* what) {
  const CallFrame& f = frame();
  if (!f.actor) return;
  throw_invalid("[" + std::string(what) + "] would block inside an actor (" + (f.what ? *f.what : "?") +
                "): make the method a coroutine (Task<T>) and co_await the future");
}

}  // namespace troupe
