#include "tools/repl/repl.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <thread>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/regular_file.h"
#include "ops/environment.h"
#include "script/show.h"
#include "tools/launch/worker_processes.h"
#include "tools/repl/attach.h"
#include "tools/repl/terminal/prompt.h"
#include "troupe/cluster/exit_code.h"
#include "troupe/cluster/launch.h"
#include "troupe/launch/stop.h"
#include "troupe/launch/stop_request.h"

namespace troupe::repl {
namespace {

std::string own_path() {
  std::string path(4096, '\0');
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  if (n <= 0) throw_error(ErrorKind::failed, "[repl] /proc/self/exe cannot be read");
  path.resize(static_cast<size_t>(n));
  return path;
}

// The workers of a cluster of processes: this command, or a program of the user's.
tools::StartedWorkers start_workers(const ReplOptions& options) {
  if (options.program.empty())
    return tools::start_workers(options.workers, own_path(), {"repl-worker", options.checkpoints.dir});
  return tools::start_workers(options.workers, options.program, options.program_arguments);
}

void banner(const ReplOptions& options, const Cluster& cluster) {
  if (options.attach) return say_attached(cluster);
  std::printf(
      "Troupe shell, Lua 5.4. %zu workers %s. Tensors count from 0, Lua's tables from 1. help() lists what "
      "there is; ^D ends.\n",
      cluster.workers().size(), options.workers ? "in as many processes" : "in this process");
}

std::string bytes_of(const std::string& path) {
  if (path != "-") return read_regular_file(path, "", "a script", size_t{64} << 20);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

// The text of a script, without a byte order mark; a first line for the system, "#!/usr/bin/env", is a
// comment.
std::string script_in(std::string text, const std::string& path) {
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    throw_invalid(path + " is UTF-16: a script is UTF-8 text");
  if (text.starts_with("#")) text.insert(0, "--");
  return text;
}

int run_chunk(Interpreter& interpreter, const std::string& text, const std::string& name) {
  const ChunkOutcome outcome = interpreter.run(text, name, false);
  std::fflush(stdout);
  if (const auto code = interpreter.exit_code()) return *code;
  const bool interrupted = script::Session::interrupted();
  script::Session::resume();
  if (interrupted && !outcome.ok) return kExitInterrupted;
  if (!outcome.ok) {
    std::fprintf(stderr, "%s\n", script::harmless(outcome.error, 1 << 14).c_str());
    return outcome.code;
  }
  try {
    int code = 0;
    for (const auto& [failure, kind] : interpreter.session().unseen_failures()) {
      std::fprintf(stderr, "a call that nobody waited for failed: %s\n",
                   script::harmless(failure, 1 << 14).c_str());
      if (code != kExitPeerLost) code = kind == ErrorKind::disconnected ? kExitPeerLost : kExitFailed;
    }
    return code;
  } catch (const Error&) {
    return 0;
  }
}

bool has_prompt(const ReplOptions& options) {
  return options.interactive || (!options.code && options.script.empty() && isatty(STDIN_FILENO));
}

// Of a script: its job ends behind the step, if it has one.
void end_by_job(int signal) noexcept {
  if (internal::take_signal(signal)) return;
  internal::say_unsaved(signal, "");
  Interpreter::interrupt(signal);
}

int drive(Interpreter& interpreter, const ReplOptions& options) {
  const bool terminal = isatty(STDIN_FILENO);
  int code = 0;
  bool ran = false;
  if (options.code) {
    code = run_chunk(interpreter, *options.code, "=-e");
    ran = true;
  }
  if (!options.script.empty() && code == 0) {
    std::string bytes;
    try {
      bytes = bytes_of(options.script);
    } catch (const Error& e) {
      std::fprintf(stderr, "troupe repl: %s\n", e.what());
      return kExitUsage;
    }
    code = run_chunk(interpreter, script_in(std::move(bytes), options.script),
                     options.script == "-" ? "=stdin" : "@" + options.script);
    ran = true;
  }
  if ((ran && !options.interactive) || interpreter.exit_code()) return code;
  if (terminal) {
    banner(options, interpreter.cluster());
    read_eval_print(interpreter);
    return interpreter.exit_code().value_or(0);
  }
  if (options.interactive) {
    replay(interpreter);
    return interpreter.exit_code().value_or(0);
  }
  return run_chunk(interpreter, script_in(bytes_of("-"), "-"), "=stdin");
}

// Under a launcher each process would be a shell with a cluster of its own.
bool refused_launcher() {
  try {
    const auto launched = LaunchEnvironment::read();
    if (!launched || launched->world < 2) return false;
    std::fprintf(stderr,
                 "troupe repl: it starts its workers itself, and was started as number %u of %u (%s): write "
                 "troupe repl -n %u, with the program behind it, in place of the launcher, or unset %s\n",
                 launched->rank, launched->world, launched->source.c_str(), launched->world,
                 launched->source.c_str());
    return true;
  } catch (const Error&) {  // the shell does not read those variables
    return false;
  }
}

// Makes a cluster, and another one once that has ended; its processes, if it has some, are children of this
// one. Ctrl-C is for the thread that runs scripts: the threads that are made here leave it alone.
class Clusters {
 public:
  explicit Clusters(const ReplOptions& options) : options_(options) {
    cluster_options_.timeout =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.timeout));
    cluster_options_.checkpoints = options.checkpoints;
  }
  std::unique_ptr<Cluster> make(int workers) {
    const tools::SignalMask none(SIG_BLOCK);
    children_.end();
    if (!options_.workers) return Cluster::in_process(workers, {}, cluster_options_);
    ReplOptions as_asked = options_;
    as_asked.workers = workers;
    auto started = start_workers(as_asked);
    children_ = std::move(started.processes);
    tools::JoinWatch watch(children_);
    try {
      return Cluster::coordinate(started.environment, {}, cluster_options_, watch.stop());
    } catch (const Error&) {
      if (watch.interrupted()) throw script::Interrupted();
      throw;
    }
  }
  // The one that the shell begins with, of so many workers `here` where it is in this process; null, with
  // `code`, if there is none.
  std::unique_ptr<Cluster> first(int here, int& code) {
    try {
      code = kExitFailed;
      return options_.attach ? attach_to(*options_.attach, cluster_options_)
                             : make(options_.workers ? options_.workers : here);
    } catch (const Error& e) {
      std::fprintf(stderr, "troupe repl: %s\n", e.what());
      code = options_.workers && e.kind() != ErrorKind::invalid ? kExitRendezvous : kExitFailed;
      return nullptr;
    }
  }

 private:
  const ReplOptions& options_;
  ClusterOptions cluster_options_;
  tools::WorkerProcesses children_;
};

int run_shell(const ReplOptions& options, Clusters& clusters, std::unique_ptr<Cluster> first) {
  Interpreter::MakeCluster make;
  if (!options.attach) make = [&clusters](int workers) { return clusters.make(workers); };
  Interpreter interpreter(std::move(first), std::move(make), options.arguments);
  struct sigaction action {};
  // Without SA_RESTART: reading a line ends, too.
  action.sa_handler = has_prompt(options) ? Interpreter::interrupt : end_by_job;
  sigaction(SIGINT, &action, nullptr);
  const tools::SignalMask open(SIG_UNBLOCK);
  int code = drive(interpreter, options);
  interpreter.end(code == 0 && !options.attach);
  if (interpreter.exit_code()) code = *interpreter.exit_code();  // of a finalizer, too
  if (script::Session::interrupted()) code = kExitInterrupted;
  if (code == 0 && internal::stop_asked()) code = 128 + internal::stop_asked();
  return code;
}

}  // namespace

int repl_main(const std::vector<std::string>& arguments) {
  ReplOptions options;
  options.checkpoints.by_flags = true;
  if (const auto code = parse_repl(arguments, options, std::cout, std::cerr)) return *code;
  if (refused_launcher()) return kExitUsage;
  int here = -options.workers;
  try {
    if (options.workers >= 0) here = LaunchEnvironment::workers();
    ops::check_environment();
  } catch (const Error& e) {
    std::fprintf(stderr, "troupe repl: %s\n", e.what());
    return kExitUsage;
  }
  options.workers = std::max(options.workers, 0);
  try {
    if (options.workers == 1) options.workers = 0;
    const internal::StopCatcher catcher(false);
    Clusters clusters(options);
    const tools::SignalMask none(SIG_BLOCK);
    int code = 0;
    auto first = clusters.first(here, code);
    return first ? run_shell(options, clusters, std::move(first)) : code;
  } catch (const script::Interrupted&) {
    return kExitInterrupted;
  } catch (const std::exception&) {
    std::fflush(stdout);
    std::fprintf(stderr, "troupe repl: %s\n", current_error().what());
    return internal::exit_code_of_exception();
  }
}

int repl_worker_main(const std::vector<std::string>& arguments) {
  ClusterOptions options;
  if (!arguments.empty()) options.checkpoints.dir = arguments[0];
  return launch([](Cluster&) {}, options);
}

}  // namespace troupe::repl
