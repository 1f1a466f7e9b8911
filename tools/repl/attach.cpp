#include "tools/repl/attach.h"

#include <cstdio>

#include "tools/watch/asking.h"
#include "troupe/cluster/attach.h"

namespace troupe::repl {

std::unique_ptr<Cluster> attach_to(const std::string& job, const ClusterOptions& options) {
  tools::Asking asking{.verb = "repl --attach", .which = {job}};
  if (asking.find(true)) return nullptr;
  const std::string answer = asking.jobs[0].ask("attach");
  if (answer.empty()) {
    asking.say_silent(asking.jobs[0]);
    return nullptr;
  }
  return attach(internal::watch::Attachment::parse(answer), options);
}

void say_attached(const Cluster& cluster) {
  std::printf(
      "Troupe shell, Lua 5.4, a guest of a job of %zu workers. help() lists what there is; ^D ends the "
      "shell, and not the job.\n",
      cluster.workers().size());
}

}  // namespace troupe::repl
