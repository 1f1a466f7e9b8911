// The arguments of `troupe repl`.
#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <ostream>
#include <utility>

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

// Why the shell does not begin: what is wrong with its arguments.
struct Usage {
  std::string text;
};

[[noreturn]] void refuse(std::string text) { throw Usage{std::move(text)}; }

bool is_script(const std::string& a) { return a == "-" || (a.size() > 4 && a.ends_with(".lua")); }

// The arguments, from the left to the right.
class ReplArguments {
 public:
  ReplArguments(const std::vector<std::string>& all, ReplOptions& options) : all_(all), options_(options) {}

  // Up to the program or the script. What is to be printed instead of a shell, if a flag asks for it.
  std::optional<std::string> flags();
  void program();
  void script();
  // What does not go together.
  void check();

 private:
  bool more() const { return at_ < all_.size(); }
  std::optional<std::string> value_of_flag() {
    if (value_) return value_;
    return at_ < all_.size() ? std::optional(all_[at_++]) : std::nullopt;
  }
  // A whole number from 1 to `most`; `what` it has to be, for errors.
  long number(const std::string& flag, const char* what, long most) {
    const auto text = value_of_flag();
    char* end = nullptr;
    const long n = text ? std::strtol(text->c_str(), &end, 10) : 0;
    if (!text || text->empty() || *end || n < 1 || n > most)
      refuse(flag + " needs " + what + ", got " + (text ? "'" + *text + "'" : "nothing"));
    return n;
  }
  // A flag of the shell as such; false: it is another one.
  bool flag_of_shell(const std::string& flag);
  bool flag_of_checkpoints(const std::string& flag);

  const std::vector<std::string>& all_;
  ReplOptions& options_;
  size_t at_ = 0;
  std::optional<std::string> value_;  // behind the = of a flag
  int in_process_ = 0;
};

std::optional<std::string> ReplArguments::flags() {
  while (more() && all_[at_] != "-" && all_[at_].starts_with("-")) {
    std::string flag = all_[at_++];
    value_.reset();
    if (const size_t is = flag.find('='); flag.starts_with("--") && is != std::string::npos) {
      value_ = flag.substr(is + 1);
      flag.resize(is);
    }
    if (flag == "-h" || flag == "--help") return kUsage;
    if (flag == "--reference") return reference_text();
    if (flag_of_shell(flag) || flag_of_checkpoints(flag)) continue;
    const std::string near = nearest(
        flag, {"--processes", "--workers", "--timeout", "--reference", "--help", "-n", "-w", "-e", "-i",
               "--attach", "--checkpoint", "--resume", "--checkpoint-every", "--checkpoint-keep"});
    refuse("unknown flag '" + flag + "'" + (near.empty() ? "" : "; did you mean " + near + "?"));
  }
  return {};
}

bool ReplArguments::flag_of_shell(const std::string& flag) {
  if (flag == "-i") {
    options_.interactive = true;
  } else if (flag == "--attach") {
    options_.attach = value_of_flag();
    if (!options_.attach) refuse("--attach needs a job, as troupe ps names it");
  } else if (flag == "-e") {
    options_.code = value_of_flag();
    if (!options_.code) refuse("-e needs code");
  } else if (flag == "-n" || flag == "--processes" || flag == "-w" || flag == "--workers") {
    const auto n = static_cast<int>(number(flag, "a number of workers from 1 to 1024", 1024));
    (flag == "-n" || flag == "--processes" ? options_.workers : in_process_) = n;
  } else if (flag == "--timeout") {
    const auto text = value_of_flag();
    options_.timeout = text ? number_in(*text).value_or(0) : 0;
    if (!(options_.timeout > 0)) refuse("--timeout needs a number of seconds above 0");
  } else {
    return false;
  }
  return true;
}

bool ReplArguments::flag_of_checkpoints(const std::string& flag) {
  Checkpoints& checkpoints = options_.checkpoints;
  if (flag == "--checkpoint") {
    const auto dir = value_of_flag();
    if (!dir || dir->empty()) refuse("--checkpoint needs a folder");
    checkpoints.dir = *dir;
  } else if (flag == "--resume") {
    checkpoints.resume = true;
  } else if (flag == "--checkpoint-every" || flag == "--checkpoint-keep") {
    (flag == "--checkpoint-every" ? checkpoints.every : checkpoints.keep) =
        number(flag, "a number above 0", std::numeric_limits<long>::max());
  } else {
    return false;
  }
  return true;
}

void ReplArguments::program() {
  if (!more() || is_script(all_[at_])) return;
  options_.program = all_[at_++];
  for (bool its_own = false; more() && !is_script(all_[at_]); ++at_) {
    const std::string& a = all_[at_];
    if (!its_own && a == "--") {
      its_own = true;
      continue;
    }
    if (!its_own && (a == "-e" || a == "-i" || a == "-n" || a == "-w"))
      refuse(
          fmt::format("{0} stands behind the program, whose flag it would be: write {0} before {1}, or, "
                      "if the program has such a flag, -- before it",
                      a, options_.program));
    options_.program_arguments.push_back(a);
  }
  if (in_process_) refuse("-w is for workers in this process; a program's are processes: -n");
  if (!options_.workers) options_.workers = 2;
  if (options_.workers < 2) refuse("with a program there have to be two processes at least: -n 2");
}

void ReplArguments::script() {
  options_.arguments = {"troupe repl"};
  if (!more()) return;
  options_.script = all_[at_];
  options_.arguments.assign(all_.begin() + static_cast<ptrdiff_t>(at_), all_.end());
}

void ReplArguments::check() {
  const Checkpoints& saved = options_.checkpoints;
  if (options_.attach && (!options_.program.empty() || options_.workers || in_process_ || !saved.dir.empty()))
    refuse("--attach is for a job that runs: it starts no workers, and keeps no checkpoints");
  if (options_.workers && in_process_)
    refuse("-n and -w exclude each other: workers are processes, or in this process");
  if (!options_.workers && in_process_) options_.workers = -in_process_;
  if (saved.dir.empty() && (saved.resume || saved.every || saved.keep != Checkpoints().keep))
    refuse("--resume, --checkpoint-every and --checkpoint-keep need --checkpoint, the folder");
}

}  // namespace

std::optional<int> parse_repl(const std::vector<std::string>& arguments, ReplOptions& options,
                              std::ostream& out, std::ostream& err) {
  ReplArguments parser(arguments, options);
  try {
    if (const auto text = parser.flags()) {
      out << *text;
      return 0;
    }
    parser.program();
    parser.script();
    parser.check();
    return {};
  } catch (const Usage& wrong) {
    err << "troupe repl: " << wrong.text << " (see troupe repl --help)\n";
    return 2;
  }
}

}  // namespace troupe::repl
