// The arguments of `troupe repl`.
#include <fmt/format.h>

#include <cstdlib>
#include <ostream>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "tools/repl/api/reference.h"
#include "tools/repl/repl.h"

namespace troupe::repl {
namespace {

constexpr const char* kUsage =
    R"(Usage: troupe repl [options] [program [its arguments]] [file.lua [arguments]]

A prompt in Lua 5.4 that drives a cluster: actors, calls, gradients, pipelines and servers by name.

  troupe repl                     three workers in this process, and a prompt
  troupe repl -n 3                three processes: the prompt is worker w0
  troupe repl -n 3 ./prog         w1 and w2 are your program's, with its actors; the prompt takes the place of its driver
  troupe repl -e CODE ./prog      flags of the shell stand before the program
  troupe repl file.lua a b        runs a script; arg[1] is "a"
  troupe repl -e 'print(1 + 1)'   runs code
  ... | troupe repl               runs what comes from standard input

  troupe repl --attach JOB        a guest of a running job, by its name or its program's, as troupe ps has them

  -n, --processes N    workers, each a process but for w0's, which is this one
  -w, --workers N      workers in this process (default 3)
  -e CODE              run this code, then end
  -i                   a prompt after file or code; standard input as if it were typed
  --timeout SECONDS    that a call may take (default 60)
  --checkpoint DIR     where job() keeps checkpoints; a program of yours needs the flag too
  --resume             go on from the newest checkpoint in DIR; without any, begin
  --checkpoint-every N, --checkpoint-keep N   steps from one to the next, and how many stay (default 2)
  --reference          print all that scripts can name, as docs/reference/shell.md
  -h, --help           this text
)";

}  // namespace

std::optional<int> parse_repl(const std::vector<std::string>& arguments, ReplOptions& options,
                              std::ostream& out, std::ostream& err) {
  int in_process = 0;
  const auto usage = [&](const std::string& text) {
    err << "troupe repl: " << text << " (see troupe repl --help)\n";
    return 2;
  };
  const auto is_script = [](const std::string& a) {
    return a == "-" || (a.size() > 4 && a.ends_with(".lua"));
  };
  size_t i = 0;
  for (; i < arguments.size(); ++i) {
    std::string a = arguments[i];
    std::optional<std::string> value;
    if (a.starts_with("--") && a.find('=') != std::string::npos) {
      value = a.substr(a.find('=') + 1);
      a = a.substr(0, a.find('='));
    }
    const auto next = [&]() -> std::optional<std::string> {
      if (value) return value;
      return i + 1 < arguments.size() ? std::optional(arguments[++i]) : std::nullopt;
    };
    if (a == "-h" || a == "--help") {
      out << kUsage;
      return 0;
    }
    if (a == "--reference") {
      out << reference_text();
      return 0;
    }
    if (a == "-i") {
      options.interactive = true;
    } else if (a == "--attach") {
      options.attach = next();
      if (!options.attach) return usage("--attach needs a job, as troupe ps names it");
    } else if (a == "-e") {
      options.code = next();
      if (!options.code) return usage("-e needs code");
    } else if (a == "-n" || a == "--processes" || a == "-w" || a == "--workers") {
      const auto text = next();
      char* end = nullptr;
      const long n = text ? std::strtol(text->c_str(), &end, 10) : 0;
      if (!text || text->empty() || *end || n < 1 || n > 1024)
        return usage(a + " needs a number of workers from 1 to 1024, got " +
                     (text ? "'" + *text + "'" : "nothing"));
      (a == "-n" || a == "--processes" ? options.workers : in_process) = static_cast<int>(n);
    } else if (a == "--checkpoint") {
      const auto dir = next();
      if (!dir || dir->empty()) return usage("--checkpoint needs a folder");
      options.checkpoints.dir = *dir;
    } else if (a == "--resume") {
      options.checkpoints.resume = true;
    } else if (a == "--checkpoint-every" || a == "--checkpoint-keep") {
      const auto text = next();
      char* end = nullptr;
      const long n = text ? std::strtol(text->c_str(), &end, 10) : 0;
      if (!text || text->empty() || *end || n < 1)
        return usage(a + " needs a number above 0, got " + (text ? "'" + *text + "'" : "nothing"));
      (a == "--checkpoint-every" ? options.checkpoints.every : options.checkpoints.keep) = n;
    } else if (a == "--timeout") {
      const auto text = next();
      options.timeout = text ? number_in(*text).value_or(0) : 0;
      if (!(options.timeout > 0)) return usage("--timeout needs a number of seconds above 0");
    } else if (a == "-" || !a.starts_with("-")) {
      break;
    } else {
      const std::string near = nearest(
          a, {"--processes", "--workers", "--timeout", "--reference", "--help", "-n", "-w", "-e", "-i",
              "--attach", "--checkpoint", "--resume", "--checkpoint-every", "--checkpoint-keep"});
      return usage("unknown flag '" + a + "'" + (near.empty() ? "" : "; did you mean " + near + "?"));
    }
  }
  if (i < arguments.size() && !is_script(arguments[i])) {
    options.program = arguments[i++];
    for (bool its_own = false; i < arguments.size() && !is_script(arguments[i]); ++i) {
      const std::string& a = arguments[i];
      if (!its_own && a == "--") {
        its_own = true;
        continue;
      }
      if (!its_own && (a == "-e" || a == "-i" || a == "-n" || a == "-w"))
        return usage(
            fmt::format("{0} stands behind the program, whose flag it would be: write {0} before {1}, or, "
                        "if the program has such a flag, -- before it",
                        a, options.program));
      options.program_arguments.push_back(a);
    }
    if (in_process) return usage("-w is for workers in this process; a program's are processes: -n");
    if (!options.workers) options.workers = 2;
    if (options.workers < 2) return usage("with a program there have to be two processes at least: -n 2");
  }
  if (options.attach &&
      (!options.program.empty() || options.workers || in_process || !options.checkpoints.dir.empty()))
    return usage("--attach is for a job that runs: it starts no workers, and keeps no checkpoints");
  if (i < arguments.size()) {
    options.script = arguments[i];
    options.arguments.assign(arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  } else {
    options.arguments = {"troupe repl"};
  }
  if (options.workers && in_process)
    return usage("-n and -w exclude each other: workers are processes, or in this process");
  if (!options.workers && in_process) options.workers = -in_process;
  const Checkpoints& saved = options.checkpoints;
  if (saved.dir.empty() && (saved.resume || saved.every || saved.keep != Checkpoints().keep))
    return usage("--resume, --checkpoint-every and --checkpoint-keep need --checkpoint, the folder");
  return {};
}

}  // namespace troupe::repl
