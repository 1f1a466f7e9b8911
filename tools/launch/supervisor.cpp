// What workers do is seen in one place, whatever host they are on.
#include "tools/launch/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/regular_file.h"
#include "net/rendezvous.h"
#include "troupe/launch/stop.h"

namespace troupe::tools {
namespace {

constexpr Seconds kHeldBack(0.2);  // how long w0 may take to die of its pipe
constexpr Seconds kJudging(0.1);   // failures that come this close together are judged together
constexpr Seconds kJudgingLoss(
    1);                          // the same while nobody but losers of a peer has failed: a cause should come
constexpr Seconds kFarewell(3);  // for agents that were told to kill, or that are not needed any more

// As `| head -1` leaves it, once it has seen enough.
bool nobody_reads(int fd) {
  pollfd pipe{fd, 0, 0};
  return poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR);
}

bool coloured(int fd) {
  const char* no = std::getenv("NO_COLOR");
  return isatty(fd) && !(no && *no);
}

}  // namespace

void Supervisor::run() {
  group_.open({SIGINT, SIGTERM, SIGQUIT, SIGCONT, SIGUSR1});
  if (!options_.log_dir.empty() && mkdir(options_.log_dir.c_str(), 0777) != 0 && errno != EEXIST)
    throw_error(ErrorKind::failed,
                fmt::format("[run] --log-dir {}: {}", options_.log_dir, std::strerror(errno)));
  if (options_.hosts.empty()) {
    terminal_.emplace(group_.id());
    std::tie(workers_say_, word_) = make_pipe();
    const Share share = share_of(options_, options_.node_rank);
    for (int64_t local = 0; local < share.processes; ++local) start(make_worker(share, local), local);
    if (!options_.elastic) word_.reset();
  } else {
    start_hosts();
  }
  // With the terminal, workers may die of a Ctrl-C before the keeper has told us of it.
  while (!still_running().empty() || (phase_ == JobPhase::judging && terminal_ && terminal_->used())) step();
  for (auto& host : hosts_) host->let_go();
  phase_ = JobPhase::killed;  // what ends from now on is no news
  set_deadline(kFarewell);
  const auto runs = [](const auto& host) { return host->runs(); };
  while (deadline_ && std::any_of(hosts_.begin(), hosts_.end(), runs)) step();
  group_.sweep();
  terminal_.reset();
  report();
}

SupervisedWorker Supervisor::make_worker(const Share& share, int64_t local) {
  SupervisedWorker worker{.rank = share.first + local};
  if (options_.places(local, 0).logged || options_.places(local, 1).logged) {
    const auto path = fmt::format("{}/w{}.log", options_.log_dir, worker.rank);
    const int begin = job_.restart == 0 ? O_TRUNC : 0;
    refuse_unless_writable_file(path, "[run] log ");
    worker.log = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | begin | O_APPEND | O_CLOEXEC, 0666));
    if (!worker.log)
      throw_error(ErrorKind::failed, fmt::format("[run] log {}: {}", path, std::strerror(errno)));
  }
  return worker;
}

void Supervisor::start(SupervisedWorker worker, int64_t local) {
  const bool driver = worker.rank == 0;
  Variables variables = variables_of(options_, job_, share_of(options_, options_.node_rank), local);
  variables.emplace_back(internal::net::kRendezvousVariable, internal::net::text_of_pipe(word_.get()));
  Start start{
      .arguments = options_.command,
      .environment = environment_with(variables, {"TROUPE_TOKEN_FILE", internal::net::kRendezvousVariable}),
      .in = driver ? STDIN_FILENO : group_.nothing(),
      .keep = word_.get()};
  start.arguments[0] = job_.program;
  Descriptor ends[2];
  if (!driver || options_.prefix_all || !options_.log_dir.empty()) {
    for (int stream : {0, 1}) {
      auto [reader, writer] = make_pipe();
      add_stream(worker, local, stream, std::move(reader));
      ends[stream] = std::move(writer);
    }
    start.out = ends[0].get();
    start.err = ends[1].get();
  }
  worker.pid = group_.start(start);
  workers_.push_back(std::move(worker));
}

void Supervisor::add_stream(SupervisedWorker& worker, int64_t local, int stream, Descriptor pipe) {
  OutputSink& sink = stream ? err_ : out_;
  const StreamPlaces places = options_.places(local, stream);
  const bool prefixed = worker.rank != 0 || options_.prefix_all;
  worker.streams.emplace_back(std::move(pipe), places.shown ? &sink : nullptr,
                              prefixed ? prefix_of(worker.rank, coloured(sink.fd())) : "",
                              places.logged ? worker.log.get() : -1, err_);
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
  const bool dies = !err_.pending().empty() && hosts_.empty() && workers_.front().rank == 0 &&
                    workers_.front().running && nobody_reads(STDOUT_FILENO);
  if (!dies) held_since_.reset();
  if (dies && !held_since_) held_since_ = SteadyClock::now();
  return dies && SteadyClock::now() - *held_since_ < kHeldBack;
}

void Supervisor::step() {
  const bool held = holds_back();
  std::vector<pollfd> polled;
  std::vector<std::function<void()>> actions;
  const auto wait_for = [&](int fd, short events, std::function<void()> action) {
    if (fd < 0) return;
    polled.push_back({fd, events, 0});
    actions.push_back(std::move(action));
  };
  for (OutputSink* sink : {&out_, &err_})
    if (!sink->pending().empty() && !(held && sink == &err_))
      wait_for(sink->fd(), POLLOUT, [sink] { sink->write_some(); });
  wait_for(group_.signals(), POLLIN, [this] {
    signalfd_siginfo info;
    while (group_.next_signal(info)) on_signal(info);
  });
  const auto wait_for_stream = [&](OutputStream& stream) {
    if (stream.wanted()) wait_for(stream.fd(), POLLIN, [&stream] { stream.read_some(64 << 10); });
  };
  for (auto& worker : workers_)
    for (auto& stream : worker.streams) wait_for_stream(stream);
  for (auto& host : hosts_) {
    if (!host->runs()) continue;
    wait_for_stream(host->chatter());
    wait_for(host->to_write(), POLLOUT, [&host] { host->write_some(); });
    if (!out_.full() && !err_.full()) wait_for(host->to_read(), POLLIN, [this, &host] { hear_host(*host); });
  }
  wait_for(workers_say_.get(), POLLIN, [] {});
  int timeout = -1;
  for (const auto& until : {deadline_, answer_until_}) {
    if (!until) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - SteadyClock::now());
    const int ms = int(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
    timeout = timeout < 0 ? ms : std::min(timeout, ms);
  }
  if (held) timeout = timeout < 0 ? 20 : std::min(timeout, 20);
  if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR)
    throw_error(ErrorKind::failed, fmt::format("[run] poll: {}", std::strerror(errno)));
  for (size_t i = 0; i < polled.size(); ++i)
    if (polled[i].revents) actions[i]();
  hear_workers();
  judge_meeting();
  start_newcomers();
  watch_silent_hosts();
  // A worker of this host would die of that itself.
  if (!hosts_.empty() && out_.failure() == EPIPE && phase_ == JobPhase::running) {
    err_.drop(EPIPE);
    stop_signal_ = SIGPIPE;
    end_all(JobPhase::ending, SIGTERM, std::min(Seconds(options_.grace), kGraceAfterFailure));
  }
  if (deadline_ && SteadyClock::now() >= *deadline_) on_deadline();
}

void Supervisor::on_signal(const signalfd_siginfo& info) {
  const int signal = int(info.ssi_signo);
  if (signal == SIGCHLD) return reap();
  if (signal == SIGCONT) {
    if (terminal_) terminal_->give();
    return signal_all(SIGCONT);
  }
  if (signal != SIGUSR1) return on_stop_request(signal, info.ssi_pid == uint32_t(getpid()));
  if (info.ssi_pid != uint32_t(group_.id()) || !terminal_) return;
  // The terminal's keys went to the workers' group. Our own group (perhaps with a shell script around us)
  // gets the same.
  if (info.ssi_int == SIGTSTP) terminal_->take();
  kill(0, info.ssi_int);
}

void Supervisor::on_stop_request(int signal, bool workers_have_it, const RemoteHost* from) {
  const bool first = asked_by_.insert(from).second;
  if (phase_ == JobPhase::ending || phase_ == JobPhase::killed) {
    // Batch systems tell every process, other hosts' when their turn comes.
    const Seconds since = SteadyClock::now() - stopped_at_;
    const bool soon = since < internal::kSameRequest;
    if (first ? from || soon : stopping_ && soon) return;
    if (phase_ == JobPhase::killed || !soon) return kill_all();
    hasty_ = true;  // unless w0 says by then that it takes its time, which makes this the same request
    return set_deadline(internal::kSameRequest - since);
  }
  stop_signal_ = signal;
  stopped_at_ = SteadyClock::now();
  for (const auto& other : std::exchange(at_the_end_, {})) say(other.text() + ", as the job ended");
  end_all(JobPhase::ending, workers_have_it ? 0 : signal, Seconds(options_.grace));
}

void Supervisor::signal_all(int signal) {
  if (hosts_.empty()) return group_.signal_all(signal);
  for (auto& host : hosts_) host->send_signal(signal);
}

void Supervisor::end_all(JobPhase phase, int signal, Seconds grace) {
  phase_ = phase;
  for (auto& host : hosts_) {
    if (!host->runs() || host->answers()) continue;
    kill(host->pid(), SIGKILL);  // an agent that is about to answer finds its lifeline cut
    forget_workers(*host);
  }
  if (signal) signal_all(signal);
  signal_all(SIGCONT);  // a stopped worker can end only once it runs again
  given_ = grace;
  if (!(stopping_ && stop_signal_)) set_deadline(grace);
}

void Supervisor::kill_all() {
  phase_ = JobPhase::killed;
  deadline_.reset();
  signal_all(SIGKILL);
  if (!hosts_.empty()) set_deadline(kFarewell);
}

void Supervisor::on_deadline() {
  deadline_.reset();
  if (phase_ == JobPhase::killed) return group_.signal_all(SIGKILL);  // agents that do not answer
  if (hasty_) return kill_all();
  if (phase_ == JobPhase::ending) {
    const auto names = still_running();
    say(fmt::format("{} did not end within {:g} s, and {} killed", fmt::join(names, ", "), given_.count(),
                    names.size() > 1 ? "are" : "is"));
    return kill_all();
  }
  if (phase_ == JobPhase::driver_ended)
    say(fmt::format("w0 ended with code 0, and {} did not end within {:g} s after it; stopping",
                    fmt::join(still_running(), ", "), options_.grace));
  end_all(JobPhase::ending, SIGTERM, std::min(Seconds(options_.grace), kGraceAfterFailure));
}

void Supervisor::reap() {
  const bool lost = group_.reap([this](pid_t pid, int status) {
    for (auto& worker : workers_)
      if (worker.running && !worker.host && worker.pid == pid) on_ended(worker, status);
    for (auto& host : hosts_)
      if (host->pid() == pid) on_host_ended(*host, status);
  });
  if (!lost) return;
  keeper_lost_ = phase_ != JobPhase::killed;
  phase_ = JobPhase::killed;
  deadline_.reset();
}

void Supervisor::on_ended(SupervisedWorker& worker, int status, const std::string& lost) {
  worker.running = false;
  const Ending ending{worker.rank, worker.pid, status, worker.host ? worker.host->name() : "", lost};
  if (worker.rank == 0) hurry();
  if (phase_ == JobPhase::ending || phase_ == JobPhase::killed) return;
  // The end that pipes have: nothing is said of it, and of what others make of it.
  if (worker.rank == 0 && ending.exit_code() == 128 + SIGPIPE && nobody_reads(STDOUT_FILENO)) {
    err_.drop(EPIPE);
    unread_ = true;
  }
  hear_workers();  // what they had said before
  if (replaced(ending)) return;
  if (ending.failed() && options_.keep_going && worker.rank != 0 && meeting_ != Meeting::waiting) {
    if (driver_failed_ || phase_ == JobPhase::judging) return;  // it ends with the driver
    if (done_ && phase_ == JobPhase::running) return at_the_end_.push_back(ending);
    say(ending.text() + (phase_ == JobPhase::driver_ended ? ", after w0 had ended with code 0"
                                                          : "; the job goes on without it (--keep-going)"));
    if (meeting_ == Meeting::unknown) ended_early_.push_back(ending);
  } else if (ending.failed()) {
    after_driver_ |= phase_ == JobPhase::driver_ended;
    const bool loss = ending.exit_code() == kLostPeer;
    if (phase_ != JobPhase::judging)
      set_deadline(loss ? kJudgingLoss : kJudging);
    else if (!loss && likely_cause(failures_)->exit_code() == kLostPeer)
      set_deadline(kJudging);
    phase_ = JobPhase::judging;
    failures_.push_back(ending);
    if (ending.killed() && policy_.restarts(attempt())) kill_all();  // nothing to judge, nobody to wait for
  } else if (worker.rank == 0 && phase_ == JobPhase::running) {
    phase_ = JobPhase::driver_ended;
    driver_ = ending;
    for (const auto& other : std::exchange(at_the_end_, {})) say(other.text() + ", as the job ended");
    set_deadline(Seconds(options_.grace));
  } else if (phase_ == JobPhase::running && meeting_ != Meeting::complete) {
    ended_early_.push_back(ending);
  }
}

// In an elastic job, whoever is killed, or leaves as it was asked to, is followed by another one. Not who
// fails by itself: another one would, too.
bool Supervisor::replaced(const Ending& ending) {
  if (!options_.elastic || ending.rank == 0 || !ending.failed() || meeting_ != Meeting::complete)
    return false;
  const int code = ending.exit_code();
  if (phase_ == JobPhase::driver_ended || (done_ && phase_ == JobPhase::running)) {
    if (code != kNeverMet) say(ending.text() + ", as the job ended");  // else it came too late
    return true;
  }
  const bool driver_failed =
      driver_failed_ || std::ranges::any_of(failures_, [](const Ending& e) { return e.rank == 0; });
  if (driver_failed && ending.killed()) {  // w0 could not go on without it: its code is the job's
    say(ending.text());
    return true;
  }
  if (driver_failed && (code == kNeverMet || code == kLostPeer)) return true;  // that is why
  if (phase_ != JobPhase::running || driver_failed) return false;
  const bool comes = ending.killed() || code == 128 + SIGTERM;
  if (!comes && code == kLostPeer) return false;
  const auto next = static_cast<int64_t>(workers_.size()) + newcomers_;
  say(ending.text() +
      (comes ? fmt::format("; w{} is started for it", next) : "; the job goes on without it (--elastic)"));
  if (comes) ++newcomers_;
  return true;
}

// Their numbers are new: nobody is taken for one that is lost.
void Supervisor::start_newcomers() {
  const Share share = share_of(options_, options_.node_rank);
  for (; newcomers_ > 0; --newcomers_) {
    const auto local = static_cast<int64_t>(workers_.size());
    if (phase_ == JobPhase::running) start(make_worker(share, local), local);
  }
}

void Supervisor::hear_workers() {
  char words[64];
  for (ssize_t got; workers_say_ && (got = read(workers_say_.get(), words, sizeof words)) >= 0;) {
    if (got == 0) workers_say_.reset();
    hear_words({words, size_t(got)});
  }
}

// A worker that has ended, well or not, before w0 has met all does not come any more; nor does w0, for those
// that wait for it.
void Supervisor::judge_meeting() {
  if (meeting_ == Meeting::complete) ended_early_.clear();
  if (phase_ == JobPhase::running && meeting_ == Meeting::waiting && !ended_early_.empty())
    never_came_ = ended_early_.front();
  else if (phase_ == JobPhase::driver_ended && meeting_ != Meeting::complete && joining_ > 0)
    never_came_ = driver_;
  else
    return;
  end_all(JobPhase::ending, SIGTERM, std::min(Seconds(options_.grace), kGraceAfterFailure));
}

void Supervisor::hear_words(std::string_view words) {
  using namespace internal::net;
  for (const char word : words) {
    if (word == kDriverWords.waits) meeting_ = Meeting::waiting;
    if (word == kDriverWords.complete) meeting_ = Meeting::complete, met_ = true;
    committed_ |= word == kCommittedWord;
    done_ |= word == kDoneWord;
    driver_failed_ |= word == kFailedWord;
    if (word == kStoppingWord) take_time();
    if (word == kDoneWord) hurry();
    joining_ += (word == kWorkerWords.waits) - (word == kWorkerWords.complete);
  }
}

// What asks for the end may be the launcher's own signal, or a worker's.
void Supervisor::take_time() {
  stopping_ = true;
  hasty_ = false;
  if (phase_ == JobPhase::ending && stop_signal_) deadline_.reset();
}

void Supervisor::hurry() {
  if (std::exchange(stopping_, false) && phase_ == JobPhase::ending && !deadline_) set_deadline(given_);
}

Attempt Supervisor::attempt() const {
  const auto failure = likely_cause(failures_);
  Attempt attempt{.code = exit_code(),
                  .killed = keeper_lost_ || (failure && failure->killed()),
                  .met = met_,
                  .committed = committed_,
                  .done = done_ || driver_,
                  .stopped = stop_signal_ || unread_};
  if (refused_ == 1) attempt.code = kNeverMet;  // a host that cannot be reached, now
  return attempt;
}

int Supervisor::exit_code() const {
  if (stop_signal_) return 128 + stop_signal_;
  if (keeper_lost_) return 128 + SIGKILL;
  if (refused_) return refused_;
  if (never_came_) return kNeverMet;
  const auto failure = likely_cause(failures_);
  return failure ? failure->exit_code() : 0;
}

void Supervisor::report() {
  for (auto& worker : workers_)
    for (auto& stream : worker.streams) {
      stream.finish();
      output_.lost |= stream.log_lost();
    }
  const auto failure = likely_cause(failures_);
  if (failure && !stop_signal_) {
    std::string text = failure->text();
    if (after_driver_) text += ", after w0 had ended with code 0";
    for (const auto& worker : workers_) {
      if (worker.rank != failure->rank || worker.streams.empty() || worker.streams[1].last().empty())
        continue;
      if (worker.host && worker.rank == 0 && !options_.prefix_all)
        continue;  // they stand above, as they came
      text += "; its last lines:";
      for (const auto& line : worker.streams[1].last()) text += "\n  " + line;
    }
    say(text);
  }
  if (never_came_ && !stop_signal_) say(never_came_->never_joined());
  if (keeper_lost_) say("the keeper process was killed, so all workers were");
}

}  // namespace troupe::tools
