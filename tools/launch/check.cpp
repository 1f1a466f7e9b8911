// Lines of "what: value", for people and for reports of trouble.
#include "tools/launch/check.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "tools/flags/flags.h"
#include "tools/launch/remote_host.h"
#include "troupe/launch/launch_environment.h"

namespace troupe::tools {
namespace {

// What a program would do that is started right here, without `troupe run`.
std::string around_us() {
  try {
    const auto found = LaunchEnvironment::read();
    if (!found) {
      const std::string why = LaunchEnvironment::why_alone();
      return fmt::format("a program started here runs alone, with {} workers in its process{}",
                         LaunchEnvironment::workers(), why.empty() ? "" : "; " + why);
    }
    return fmt::format("a program started here is w{} of {} ({}), and w0 is at {}", found->rank, found->world,
                       found->source, found->address.empty() ? "no known address" : found->address);
  } catch (const Error& e) {
    return "a program started here ends with an error: " + e.message();
  }
}

}  // namespace

std::string way_to(const RunOptions& options, int64_t node) {
  const Host& host = options.hosts.at(size_t(node));
  if (is_this_host(host)) return host.name + ", which is this host";
  std::string way = host.name + ", by";
  for (const auto& word : agent_command(options.rsh, host)) way += " " + shell_quoted(word);
  return way;
}

std::string check_text(const RunOptions& options, const Job& job) {
  std::string text =
      fmt::format("troupe: {}, {} cores\nlauncher: {}\n", version(), usable_cores(), around_us());
  if (!options.command.empty() && !job.program.empty()) text += "program: " + job.program + "\n";
  text += fmt::format("workers: {}\nmeet at: {}\nsecret: {}\n", options.world_size(), job.address,
                      job.secret_from);
  for (int64_t node = 0; node < int64_t(options.hosts.size()); ++node) {
    const Share share = share_of(options, node);
    text += fmt::format("w{}", share.first);
    if (share.processes > 1) text += fmt::format(" to w{}", share.first + share.processes - 1);
    text += " on: " + way_to(options, node) + "\n";
  }
  return text;
}

}  // namespace troupe::tools
