// One poll loop over signals, pipes and outputs; time enters only as the timeout of poll().
#include "tools/launch/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <tuple>

#include "core/base/error.h"
#include "net/rendezvous.h"
#include "tools/launch/ending.h"
#include "tools/launch/output.h"
#include "tools/launch/process.h"
#include "tools/launch/terminal.h"

namespace troupe::tools {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
constexpr Seconds kHeldBack(0.2);  // how long w0 may take to die of its pipe
constexpr Seconds kJudging(0.1);   // failures that come this close together are judged together
constexpr Seconds kJudgingLoss(
    1);  // the same while nobody but losers of a peer has failed: a cause should come
constexpr Seconds kAfterFailure(2);  // the longest grace once a worker has failed

struct ChildWorker {
  int64_t rank = 0;
  pid_t pid = 0;
  bool running = true;
  Descriptor log{};
  std::vector<OutputStream> streams;  // output, error; empty if they are ours
};

enum class Phase {
  running,
  driver_ended,  // w0 ended well; the others may end by themselves
  judging,       // a worker failed; which one did first?
  ending,        // all were asked to end
  killed,
};

// As `| head -1` leaves it, once it has seen enough.
bool nobody_reads(int fd) {
  pollfd pipe{fd, 0, 0};
  return poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR);
}

bool coloured(int fd) {
  const char* no = std::getenv("NO_COLOR");
  return isatty(fd) && !(no && *no);
}

class Supervisor {
 public:
  Supervisor(const RunOptions& options, const Job& job) : options_(options), job_(job) {}
  ~Supervisor() { sweep(); }
  int run();

 private:
  void take_signals();
  void raise_file_limit();
  void start(int64_t local);
  void step();
  void on_signal(const signalfd_siginfo& info);
  void on_stop_request(int signal, bool workers_have_it);
  void on_ended(ChildWorker& worker, int status);
  void hear_workers();
  bool holds_back();
  void on_deadline();
  void reap();
  void end_all(Phase phase, int signal, Seconds grace);
  void kill_all();
  void signal_all(int signal) {
    if (!keeper_ended_) kill(-group_, signal);
  }
  void sweep();
  int report();
  void say(const std::string& text) { err_.add("troupe run: " + text + "\n"); }
  void set_deadline(Seconds in) {
    deadline_ = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(in);
  }
  std::vector<std::string> still_running() const;

  const RunOptions& options_;
  const Job& job_;
  OutputSink out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  Descriptor signals_, nothing_;
  rlim_t files_ = 0;  // the limit that the workers get back
  pid_t group_ = 0;   // the keeper
  std::optional<Terminal> terminal_;
  std::vector<ChildWorker> workers_;
  Phase phase_ = Phase::running;
  std::optional<SteadyClock::time_point> deadline_, held_since_;
  std::vector<Ending> failures_;
  Descriptor workers_say_, word_;  // both ends of the pipe of net/rendezvous.h
  int64_t joining_ = 0;            // workers besides w0 that wait for the cluster to come together
  std::optional<Ending> driver_;   // how w0 ended, if it did, well
  enum class Meeting { unknown, waiting, complete } meeting_ = Meeting::unknown;
  std::vector<Ending> ended_early_;  // workers besides w0, before it says that all have come together
  std::optional<Ending> never_came_;
  Seconds given_{};            // to end in
  bool after_driver_ = false;  // w0 had ended well before they came
  int stop_signal_ = 0;
  bool keeper_ended_ = false;  // group_ is then good for waiting only
  bool keeper_lost_ = false;   // ended by a stranger
};

void Supervisor::take_signals() {
  for (int fd = 0; fd < 3; ++fd)  // a pipe must not become one of these
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
      throw_error(ErrorKind::failed, "[run] /dev/null cannot be opened");
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGCONT, SIGUSR1}) sigaddset(&set, signal);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);  // nohup stays in force
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log file as large as it may be is an error of its own
  signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) throw_error(ErrorKind::failed, fmt::format("[run] no signalfd: {}", std::strerror(errno)));
  // Grandchildren whose parent is gone become ours: they can be waited for after the kill.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void Supervisor::raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  files_ = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Supervisor::run() {
  take_signals();
  group_ = start_keeper();
  raise_file_limit();
  nothing_ = Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!options_.log_dir.empty() && mkdir(options_.log_dir.c_str(), 0777) != 0 && errno != EEXIST)
    throw_error(ErrorKind::failed,
                fmt::format("[run] --log-dir {}: {}", options_.log_dir, std::strerror(errno)));
  terminal_.emplace(group_);
  std::tie(workers_say_, word_) = make_pipe();
  for (int64_t local = 0; local < options_.processes; ++local) start(local);
  word_.reset();
  // With the terminal, workers may die of a Ctrl-C before the keeper has told us of it.
  while (!still_running().empty() || (phase_ == Phase::judging && terminal_->used())) step();
  sweep();
  return report();
}

void Supervisor::start(int64_t local) {
  ChildWorker worker{.rank = rank_of(options_, local)};
  if (!options_.log_dir.empty()) {
    const auto path = fmt::format("{}/w{}.log", options_.log_dir, worker.rank);
    worker.log = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!worker.log)
      throw_error(ErrorKind::failed, fmt::format("[run] log {}: {}", path, std::strerror(errno)));
  }
  const bool driver = worker.rank == 0;
  Variables variables = variables_of(options_, job_, local);
  variables.emplace_back(internal::net::kRendezvousVariable, internal::net::text_of_pipe(word_.get()));
  Start start{
      .arguments = options_.command,
      .environment = environment_with(variables, {"TROUPE_TOKEN_FILE", internal::net::kRendezvousVariable}),
      .group = group_,
      .in = driver ? STDIN_FILENO : nothing_.get(),
      .keep = word_.get(),
      .files = files_};
  start.arguments[0] = job_.program;
  Descriptor ends[2];
  if (!driver || options_.prefix_all || worker.log) {
    const bool prefixed = !driver || options_.prefix_all;
    for (OutputSink* sink : {&out_, &err_}) {
      auto [reader, writer] = make_pipe();
      const auto prefix = prefixed ? prefix_of(worker.rank, coloured(sink->fd())) : "";
      worker.streams.emplace_back(std::move(reader), *sink, prefix, worker.log.get(), err_);
      ends[sink == &err_] = std::move(writer);
    }
    start.out = ends[0].get();
    start.err = ends[1].get();
  }
  worker.pid = start_process(start);
  workers_.push_back(std::move(worker));
}

std::vector<std::string> Supervisor::still_running() const {
  std::vector<std::string> names;
  for (const auto& worker : workers_)
    if (worker.running) names.push_back(fmt::format("w{}", worker.rank));
  return names;
}

// Where nobody reads what w0 prints, it may be dying of that right now, and what others make of its end is
// not shown: on_ended().
bool Supervisor::holds_back() {
  const bool dies = !err_.pending().empty() && workers_.front().rank == 0 && workers_.front().running &&
                    nobody_reads(STDOUT_FILENO);
  if (!dies) held_since_.reset();
  if (dies && !held_since_) held_since_ = SteadyClock::now();
  return dies && SteadyClock::now() - *held_since_ < kHeldBack;
}

void Supervisor::step() {
  const bool held = holds_back();
  std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
  std::vector<OutputSink*> sinks;
  std::vector<OutputStream*> streams;
  for (OutputSink* sink : {&out_, &err_}) {
    if (sink->pending().empty() || (held && sink == &err_)) continue;
    polled.push_back({sink->fd(), POLLOUT, 0});
    sinks.push_back(sink);
  }
  for (auto& worker : workers_) {
    for (auto& stream : worker.streams) {
      if (!stream.wanted()) continue;
      polled.push_back({stream.fd(), POLLIN, 0});
      streams.push_back(&stream);
    }
  }
  if (workers_say_) polled.push_back({workers_say_.get(), POLLIN, 0});
  int timeout = -1;
  if (deadline_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - SteadyClock::now());
    timeout = int(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
  }
  if (held) timeout = timeout < 0 ? 20 : std::min(timeout, 20);
  if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR)
    throw_error(ErrorKind::failed, fmt::format("[run] poll: {}", std::strerror(errno)));

  for (size_t i = 0; i < sinks.size(); ++i)
    if (polled[1 + i].revents) sinks[i]->write_some();
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) on_signal(info);
  for (size_t i = 0; i < streams.size(); ++i)
    if (polled[1 + sinks.size() + i].revents) streams[i]->read_some(64 << 10);
  hear_workers();
  if (deadline_ && SteadyClock::now() >= *deadline_) on_deadline();
}

void Supervisor::on_signal(const signalfd_siginfo& info) {
  const int signal = int(info.ssi_signo);
  if (signal == SIGCHLD) return reap();
  if (signal == SIGCONT) {
    terminal_->give();
    return signal_all(SIGCONT);
  }
  if (signal != SIGUSR1) return on_stop_request(signal, info.ssi_pid == uint32_t(getpid()));
  if (info.ssi_pid != uint32_t(group_)) return;
  // The terminal's keys went to the workers' group. Our own group (perhaps with a shell script around us)
  // gets the same.
  if (info.ssi_int == SIGTSTP) terminal_->take();
  kill(0, info.ssi_int);
}

void Supervisor::on_stop_request(int signal, bool workers_have_it) {
  if (phase_ == Phase::ending || phase_ == Phase::killed) return kill_all();
  stop_signal_ = signal;
  end_all(Phase::ending, workers_have_it ? 0 : signal, Seconds(options_.grace));
}

void Supervisor::end_all(Phase phase, int signal, Seconds grace) {
  phase_ = phase;
  if (signal) signal_all(signal);
  signal_all(SIGCONT);  // a stopped worker can end only once it runs again
  given_ = grace;
  set_deadline(grace);
}

void Supervisor::kill_all() {
  phase_ = Phase::killed;
  deadline_.reset();
  signal_all(SIGKILL);
}

void Supervisor::on_deadline() {
  deadline_.reset();
  if (phase_ == Phase::ending) {
    const auto names = still_running();
    say(fmt::format("{} did not end within {:g} s, and {} killed", fmt::join(names, ", "), given_.count(),
                    names.size() > 1 ? "are" : "is"));
    return kill_all();
  }
  if (phase_ == Phase::driver_ended)
    say(fmt::format("w0 ended with code 0, and {} did not end within {:g} s after it; stopping",
                    fmt::join(still_running(), ", "), options_.grace));
  end_all(Phase::ending, SIGTERM, std::min(Seconds(options_.grace), kAfterFailure));
}

void Supervisor::reap() {
  for (;;) {
    siginfo_t next{};
    if (waitid(P_ALL, 0, &next, WEXITED | WNOHANG | WNOWAIT) != 0 || next.si_pid == 0) return;
    if (next.si_pid == group_) {
      // Somebody killed the keeper. While it is not yet waited for, its number still means our group.
      kill(-group_, SIGKILL);
      keeper_lost_ = phase_ != Phase::killed;
      phase_ = Phase::killed;
      deadline_.reset();
      keeper_ended_ = true;
    }
    int status = 0;
    waitpid(next.si_pid, &status, 0);
    for (auto& worker : workers_)
      if (worker.running && worker.pid == next.si_pid) on_ended(worker, status);
  }
}

void Supervisor::on_ended(ChildWorker& worker, int status) {
  worker.running = false;
  const Ending ending{worker.rank, worker.pid, status};
  if (phase_ == Phase::ending || phase_ == Phase::killed) return;
  // The end that pipes have: nothing is said of it, and of what others make of it.
  if (worker.rank == 0 && ending.exit_code() == 128 + SIGPIPE && nobody_reads(STDOUT_FILENO))
    err_.drop(EPIPE);
  if (ending.failed() && options_.keep_going && worker.rank != 0 && meeting_ != Meeting::waiting) {
    say(ending.text() + "; the job goes on without it (--keep-going)");
    if (meeting_ == Meeting::unknown) ended_early_.push_back(ending);
  } else if (ending.failed()) {
    after_driver_ |= phase_ == Phase::driver_ended;
    const bool loss = ending.exit_code() == kLostPeer;
    if (phase_ != Phase::judging)
      set_deadline(loss ? kJudgingLoss : kJudging);
    else if (!loss && likely_cause(failures_)->exit_code() == kLostPeer)
      set_deadline(kJudging);
    phase_ = Phase::judging;
    failures_.push_back(ending);
  } else if (worker.rank == 0 && phase_ == Phase::running) {
    phase_ = Phase::driver_ended;
    driver_ = ending;
    set_deadline(Seconds(options_.grace));
  } else if (phase_ == Phase::running && meeting_ != Meeting::complete) {
    ended_early_.push_back(ending);
  }
}

// A worker that has ended, well or not, before w0 has met all does not come any more; nor does w0, for those
// that wait for it.
void Supervisor::hear_workers() {
  using namespace internal::net;
  char words[64];
  for (ssize_t got; workers_say_ && (got = read(workers_say_.get(), words, sizeof words)) >= 0;) {
    if (got == 0) workers_say_.reset();
    for (const char word : std::string_view(words, size_t(got))) {
      if (word == kDriverWords.waits) meeting_ = Meeting::waiting;
      if (word == kDriverWords.complete) meeting_ = Meeting::complete;
      joining_ += (word == kWorkerWords.waits) - (word == kWorkerWords.complete);
    }
  }
  if (meeting_ == Meeting::complete) ended_early_.clear();
  if (phase_ == Phase::running && meeting_ == Meeting::waiting && !ended_early_.empty())
    never_came_ = ended_early_.front();
  else if (phase_ == Phase::driver_ended && meeting_ != Meeting::complete && joining_ > 0)
    never_came_ = driver_;
  else
    return;
  end_all(Phase::ending, SIGTERM, std::min(Seconds(options_.grace), kAfterFailure));
}

void Supervisor::sweep() {
  if (group_) {
    signal_all(SIGKILL);  // the keeper, and what the workers left behind
    while (waitpid(-group_, nullptr, 0) > 0 || errno == EINTR) {
    }
  }
  terminal_.reset();
  group_ = 0;
}

int Supervisor::report() {
  bool lost = false;
  for (auto& worker : workers_)
    for (auto& stream : worker.streams) {
      stream.finish();
      lost |= stream.log_lost();
    }
  const auto failure = likely_cause(failures_);
  if (failure && !stop_signal_) {
    std::string text = failure->text();
    if (after_driver_) text += ", after w0 had ended with code 0";
    for (const auto& worker : workers_) {
      if (worker.rank != failure->rank || worker.streams.empty() || worker.streams[1].last().empty())
        continue;
      text += "; its last lines:";
      for (const auto& line : worker.streams[1].last()) text += "\n  " + line;
    }
    say(text);
  }
  if (never_came_ && !stop_signal_) say(never_came_->never_joined());
  if (keeper_lost_) say("the keeper process was killed, so all workers were");
  // Nothing is left to clean up: a new Ctrl-C may now end us even in the middle of a write.
  signalfd_siginfo old;
  while (read(signals_.get(), &old, sizeof old) == sizeof old) {
  }
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) sigaddset(&set, signal);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  out_.flush();
  // A reader that has gone has seen enough (EPIPE); a disk that is full has not.
  if (out_.failure() && out_.failure() != EPIPE) {
    lost = true;
    say(fmt::format("standard output cannot be written: {}", std::strerror(out_.failure())));
  }
  err_.flush();
  if (stop_signal_) return 128 + stop_signal_;
  if (keeper_lost_) return 128 + SIGKILL;
  if (never_came_) return kNeverMet;
  return failure ? failure->exit_code() : lost;
}

}  // namespace

int run_job(const RunOptions& options, const Job& job) { return Supervisor(options, job).run(); }

int run_main(const std::vector<std::string>& arguments) {
  RunOptions options;
  if (auto code = parse_run(arguments, options, std::cout, std::cerr)) return *code;
  try {
    const Job job = make_job(options, [](const char* name) { return std::getenv(name); });
    if (!options.dry_run) return run_job(options, job);
    for (int64_t local = 0; local < options.processes; ++local)
      std::cout << dry_run_line(options, job, local) << "\n";
    return 0;
  } catch (const Error& e) {
    auto text = e.message();
    if (text.starts_with("[run] ")) text.erase(0, 6);
    std::cerr << "troupe run: " << text << "\n";
    return e.kind() == ErrorKind::invalid ? 2 : 1;
  }
}

}  // namespace troupe::tools
