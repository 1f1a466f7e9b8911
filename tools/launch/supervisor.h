// One attempt at a job, as its launcher sees it: from the start of all workers to their end.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/launch/ending.h"
#include "tools/launch/job.h"
#include "tools/launch/output.h"
#include "tools/launch/remote_host.h"
#include "tools/launch/restart.h"
#include "tools/launch/run_options.h"
#include "tools/launch/terminal.h"
#include "tools/launch/worker_group.h"

namespace troupe::tools {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
inline constexpr Seconds kGraceAfterFailure(2);  ///< the longest once a worker has failed

struct SupervisedWorker {
  int64_t rank = 0;
  pid_t pid = 0;
  bool running = true;
  RemoteHost* host = nullptr;  // null: it is our child
  Descriptor log{};
  std::vector<OutputStream> streams;  // output, error; empty if they are ours
};

enum class JobPhase {
  running,
  driver_ended,  // w0 ended well; the others may end by themselves
  judging,       // a worker failed; which one did first?
  ending,        // all were asked to end
  killed,
};

/// What all attempts write to.
struct JobOutput {
  OutputSink out{STDOUT_FILENO}, err{STDERR_FILENO};
  bool lost = false;  ///< some of it is not where it should be

  void say(const std::string& text) { err.add("troupe run: " + text + "\n"); }
};

/// One poll loop over signals, pipes and outputs; time enters only as the timeout of poll(). Workers of other
/// hosts are judged as those of this one.
class Supervisor {
 public:
  Supervisor(const RunOptions& options, const Job& job, const RestartPolicy& policy, JobOutput& output)
      : options_(options), job_(job), policy_(policy), output_(output), out_(output.out), err_(output.err) {}
  /// Until nothing is left of it, but text that waits to be written; says what went wrong.
  void run();
  /// How it has ended, or would if it ended now.
  Attempt attempt() const;
  /// The job's, if it ends with this attempt.
  int exit_code() const;

 private:
  SupervisedWorker make_worker(const Share& share, int64_t local);
  void start(SupervisedWorker worker, int64_t local);
  void add_stream(SupervisedWorker& worker, int64_t local, int stream, Descriptor pipe);
  void start_hosts();
  void step();
  void hear_host(RemoteHost& host);
  void on_frame(RemoteHost& host, const AgentFrame& frame);
  void on_host_ended(RemoteHost& host, int status);
  void watch_silent_hosts();
  void refuse_host(const RemoteHost& host, const std::string& why, int code);
  bool has_workers(const RemoteHost& host) const;
  void forget_workers(const RemoteHost& host);
  void on_signal(const signalfd_siginfo& info);
  void on_stop_request(int signal, bool workers_have_it, const RemoteHost* from = nullptr);
  void on_ended(SupervisedWorker& worker, int status, const std::string& lost = "");
  bool replaced(const Ending& ending);
  void start_newcomers();
  void hear_workers();
  void judge_meeting();
  void hear_words(std::string_view words);
  void take_time();
  void hurry();
  bool holds_back();
  void on_deadline();
  void reap();
  void end_all(JobPhase phase, int signal, Seconds grace);
  void kill_all();
  void signal_all(int signal);
  void report();
  void say(const std::string& text) { output_.say(text); }
  void set_deadline(Seconds in) {
    deadline_ = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(in);
  }
  std::vector<std::string> still_running() const;

  const RunOptions& options_;
  const Job& job_;
  const RestartPolicy& policy_;
  JobOutput& output_;
  OutputSink &out_, &err_;            // of output_
  WorkerGroup group_;                 // of workers, or of what leads to other hosts
  std::optional<Terminal> terminal_;  // empty with other hosts: no worker reads the keyboard
  std::vector<std::unique_ptr<RemoteHost>> hosts_;
  Seconds patience_{60};                                 // with hosts that do not answer
  std::optional<SteadyClock::time_point> answer_until_;  // empty: all have answered
  std::vector<SupervisedWorker> workers_;
  JobPhase phase_ = JobPhase::running;
  std::optional<SteadyClock::time_point> deadline_, held_since_;
  std::vector<Ending> failures_;
  Descriptor workers_say_, word_;  // both ends of the pipe of net/rendezvous.h
  int64_t newcomers_ = 0;          // to be started in the place of others
  int64_t joining_ = 0;            // workers besides w0 that wait for the cluster to come together
  std::optional<Ending> driver_;   // how w0 ended, if it did, well
  enum class Meeting { unknown, waiting, complete } meeting_ = Meeting::unknown;
  std::vector<Ending> ended_early_;  // workers besides w0, before it says that all have come together
  std::vector<Ending> at_the_end_;   // with keep_going: between the driver's last word and its own end
  std::optional<Ending> never_came_;
  Seconds given_{};            // to end in
  bool after_driver_ = false;  // w0 had ended well before they came
  int stop_signal_ = 0;
  SteadyClock::time_point stopped_at_{};  // when that came
  std::set<const RemoteHost*> asked_by_;  // whose agents were told to end; null: we were
  int refused_ = 0;                       // the exit code if a host cannot take part
  bool keeper_lost_ = false;              // ended by a stranger
  bool unread_ = false;                   // nobody reads what w0 prints any more, and it died of that
  bool met_ = false, committed_ = false, done_ = false;  // as in Attempt
  bool driver_failed_ = false;                           // as w0 says, which has not ended yet
  bool hasty_ = false;     // asked to end twice within kSameRequest, and w0 has not answered the first
  bool stopping_ = false;  // w0 comes to its end by itself, and takes its time
};

}  // namespace troupe::tools
