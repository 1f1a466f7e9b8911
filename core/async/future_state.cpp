#include "core/async/future_state.h"

#include <string>

#include "core/base/log.h"

namespace troupe {

void log_thrown_by_callback() {
  internal::log::error(
      std::string("[future] a callback of on_ready() threw, which nobody sees; use then(): ") +
      current_error().what());
}

void throw_empty_future(const char* use) {
  throw_invalid(
      "[future] " + std::string(use) +
      " of an empty future: it was made by default, or moved from; a copy refers to the same value");
}

void throw_empty_promise(const char* use) {
  throw_invalid("[future] " + std::string(use) + " of an empty promise: it was moved from");
}

}  // namespace troupe
