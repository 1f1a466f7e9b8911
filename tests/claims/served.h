// A cluster of real processes that serves the programs of tests.
#pragma once
#include <signal.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/process/launcher.h"
#include "tests/support/eventually.h"

namespace troupe::testing {

/// Five workers. The cluster's own program does nothing, or has an actor on worker `own`.
class Served {
 public:
  explicit Served(const std::string& own = "", std::vector<std::string> flags = {})
      : run(arguments(own, std::move(flags))) {
    run.await("planted\n");
    job = run.line("job ");
  }
  ~Served() { run.signal(SIGKILL); }

  /// A program that comes as a guest; see programs/guests.cpp.
  std::vector<std::string> guest(const std::string& what, std::vector<std::string> workers) const {
    workers.insert(workers.begin(), {program("guests"), job, what});
    return workers;
  }
  /// What a worker has that programs make there: "actors 2 contexts 1 "; empty if nothing.
  std::string left(const std::string& worker) const {
    Process says({kTroupeCommand, "metrics", "--json", job});
    if (says.exit_code() != 0) return "no answer";
    std::string text;
    const auto report = nlohmann::json::parse(says.output);
    for (const auto& of : report.at("workers")) {
      if (of.at("worker") != worker) continue;
      const auto& metrics = of.at("metrics");
      for (const char* what : {"actors",          "backward_passes",     "borrowed_references",
                               "claims",          "collectives",         "contexts",
                               "early_arguments", "early_collectives",   "group_mail",
                               "group_tags",      "late_calls",          "names",
                               "owned_objects",   "owned_references",    "owned_values",
                               "parked_packets",  "pending_references",  "receive_nodes",
                               "send_nodes",      "tensor_memory_bytes", "unanswered_calls"})
        if (const auto count = metrics.at(what).get<int64_t>())
          text += std::string(what) + " " + std::to_string(count) + " ";
    }
    return text;
  }
  /// Whether all of these become free of everything.
  bool is_left_by_all(const std::vector<std::string>& workers) const {
    for (const std::string& worker : workers) {
      const bool empty = eventually([&] { return left(worker).empty(); });
      UNSCOPED_INFO(worker << ": " << left(worker));
      if (!empty) return false;
    }
    return true;
  }

  Launcher run;
  std::string job;

 private:
  static std::vector<std::string> arguments(const std::string& own, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--control", "-n", "5", program("guests")});
    if (!own.empty()) flags.push_back(own);
    return flags;
  }
};

}  // namespace troupe::testing
