#include "tools/watch/watch.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tools/watch/asking.h"

namespace troupe::tools {
namespace {

struct Described {
  const char* name;
  const char* text;
  Verb* run;
};
constexpr Described kVerbs[] = {
    {"ps", "Lists your jobs on this host: workers, steps, loss, memory, and actors.", ps_main},
    {"top", "Shows a job as it goes on: what slows it down, then its workers.", top_main},
    {"waits", "Says what keeps a job waiting, the cause first.", waits_main},
    {"logs", "Prints the last log lines of a job's processes, up to 1 MiB of each.", logs_main},
    {"trace", "Follows a job for a moment: a timeline, and a table of where the time goes.", trace_main},
    {"metrics", "Prints the counters of your jobs in Prometheus's text format.", metrics_main}};

}  // namespace

bool is_watch_verb(const std::string& name) {
  return std::ranges::find(kVerbs, name, &Described::name) != std::end(kVerbs);
}

int watch_main(const std::string& name, const std::vector<std::string>& arguments) {
  const Described& verb = *std::ranges::find(kVerbs, name, &Described::name);
  Asking asking{.verb = name};
  Flags flags("troupe " + name, verb.text);
  flags.rest("job", asking.which,
             "what its name, or its program's, begins with; none: every job of yours, or the only one");
  flags.footer(
      "Jobs of this user on this host (of all users, for root), found by their doors: abstract sockets, "
      "which a job\n"
      "started with TROUPE_WATCH=0 has not. On another host: ssh HOST troupe " +
      name + ".");
  try {
    return verb.run(asking, flags, arguments);
  } catch (const Error& e) {
    std::cerr << "troupe " << name << ": " << e.message() << "\n";
    return 1;
  } catch (const nlohmann::json::exception& e) {
    std::cerr << "troupe " << name << ": the job's answer cannot be read: " << e.what() << "\n";
    return 1;
  }
}

}  // namespace troupe::tools
