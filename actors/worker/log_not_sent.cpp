#include "actors/worker/log_not_sent.h"

#include "core/base/log.h"

namespace troupe::internal::actors {

void log_not_sent(const Error& why) {
  if (why.kind() != ErrorKind::disconnected || why.worker().empty())
    return log::warning(std::string("a message was not sent: ") + why.what());
  log::warning_once(why.message());
  std::string text = "a message to " + why.worker() + " was not sent";
  for (const std::string& call : why.trail()) text += "\n  in " + call;
  log::warning(text);
}

}  // namespace troupe::internal::actors
