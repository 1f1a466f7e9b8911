#include "troupe/cluster/launch.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/out_of_memory.h"
#include "core/base/standard_output.h"
#include "core/base/thread.h"
#include "net/rendezvous.h"
#include "ops/environment.h"
#include "troupe/checkpoint/checkpoints.h"
#include "troupe/checkpoint/job_messages.h"
#include "troupe/checkpoint/rehearsal.h"
#include "troupe/cluster/anew.h"
#include "troupe/cluster/attach.h"
#include "troupe/cluster/end_watch.h"
#include "troupe/cluster/exit_code.h"
#include "troupe/launch/stop.h"
#include "troupe/launch/stop_request.h"
#include "troupe/watch/attachment.h"
#include "troupe/watch/title.h"
#include "troupe/watch/trace_answer.h"
#include "troupe/watch/watch_door.h"

namespace troupe {

int internal::exit_code_of_exception() {
  try {
    throw;
  } catch (const CheckpointRefused&) {
    return kExitCheckpoint;
  } catch (...) {
    return current_error().kind() == ErrorKind::disconnected ? kExitPeerLost : kExitFailed;
  }
}

namespace {

using internal::exit_code_of_exception;
using SteadyClock = std::chrono::steady_clock;

// Takes SIGINT and SIGTERM on a thread of its own while it is alive. Made before any other thread, so that
// all of them leave the signals to it.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    for (int s : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&set_, s);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    try {
      thread_ = start_thread("launch", [this] { loop(); });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before_, nullptr);
      throw;
    }
  }
  ~Signals() {
    ending_ = true;
    pthread_kill(thread_.native_handle(), SIGUSR2);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  /// Called on the first signal, at once if it came already.
  void on_signal(std::function<void()> f) {
    std::lock_guard lock(mutex_);
    f_ = std::move(f);
    if (received_ && f_) f_();
  }
  /// Called on each SIGUSR1, which does nothing without it.
  void on_question(std::function<void()> f) {
    std::lock_guard lock(mutex_);
    question_ = std::move(f);
  }
  /// The signal that came, or 0.
  int received() const { return received_; }
  /// The program ends by itself, and kSameRequest is heeded.
  void granted(bool yes) { granted_ = yes; }

 private:
  void loop() {
    for (;;) {
      int signal = 0;
      sigwait(&set_, &signal);
      if (signal == SIGUSR2) {
        if (ending_) return;
        continue;
      }
      if (signal == SIGUSR1) {
        std::lock_guard lock(mutex_);
        if (question_) question_();
        continue;
      }
      if (received_ && granted_ && SteadyClock::now() - first_ < internal::kSameRequest) continue;
      if (received_) _exit(128 + signal);
      first_ = SteadyClock::now();
      std::lock_guard lock(mutex_);
      received_ = signal;
      if (f_) f_();
    }
  }
  sigset_t set_{}, before_{};
  std::atomic<bool> ending_{false}, granted_{false};
  std::atomic<int> received_{0};
  SteadyClock::time_point first_{};  // of the thread
  internal::Mutex mutex_;
  std::function<void()> f_, question_;
  std::thread thread_;
};

// Its worker, once that is known. Threads may end the process after its last destructor.
std::string& process_name = *new std::string("troupe");

void complain(const std::string& who, const char* text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: error: %s\n", who.c_str(), text);
}

int drive(Cluster& cluster, Signals& signals, EndWatch& watch, const std::function<void(Cluster&)>& driver,
          Duration shutdown_timeout) {
  int code = 0;
  std::atomic<bool> interrupted{false};
  signals.on_signal([&] {
    signals.granted(internal::ask_to_stop(signals.received(), "w0"));
    if (internal::stop_asked()) return;
    interrupted = true;
    internal::say_unsaved(signals.received(), "w0: ");
    cluster.worker().interrupt("[launch] interrupted");
    watch.driver_interrupted();
  });
  try {
    try {
      internal::Anew(cluster).run(driver);
    } catch (const internal::RehearsalEnd&) {  // of its job
    }
    end_refused_child("the end of the driver's function");  // it has nothing to say for its parent
    flush_output();
    internal::net::say_done();
    if (!interrupted) cluster.shutdown({.timeout = shutdown_timeout});
  } catch (const internal::StopEnd&) {  // of its job
    internal::net::say_done();
  } catch (...) {
    const Error e = current_error();
    if (in_refused_child()) complain("w0", e.what());
    end_refused_child("the end of the driver's function");
    if (!interrupted) internal::net::say_failed();  // before others end with it
    // After a signal other errors are its consequences. Not a shutdown's: other workers that were told to end
    // with it may have made `troupe run` send the signal.
    if (!interrupted || e.kind() == ErrorKind::deadline) complain("w0", e.what());
    code = exit_code_of_exception();
  }
  signals.on_signal(nullptr);
  if (interrupted)
    code = 128 + signals.received();
  else if (code == 0 && internal::stop_asked())
    code = 128 + internal::stop_asked();
  cluster.set_exit_code(code);
  watch.driver_returned();
  try {
    cluster.shutdown({.graceful = false, .timeout = shutdown_timeout});  // if it has not been
  } catch (const Error& e) {
    complain("w0", e.what());
  }
  return code;
}

}  // namespace

namespace {

constexpr size_t kRoom = 64;       // MiB
constexpr size_t kThreadRoom = 8;  // of a stack, as `ulimit -s` has it mostly

// Below this, whatever needs the next bytes fails, on threads where nothing can be done about it, and in
// libraries that do not look (oneDNN, when it makes code; glibc, when a thread's variables are destroyed).
void check_room(size_t mib) {
  void* room = mmap(nullptr, mib << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw_error(ErrorKind::failed, "[launch] less than " + std::to_string(mib) +
                                       " MiB of address space are left to this process: ulimit -v says how "
                                       "much it may have");
  munmap(room, mib << 20);
}

// Before the threads of a cluster start: those of its pool, and some more.
void check_room_for_threads() { check_room(kRoom + kThreadRoom * (static_cast<size_t>(usable_cores()) + 8)); }

constexpr WorkerId kDriverWorker = 0;

// Others see it of this process: the same name for all processes of the job.
std::string job_name(const std::optional<LaunchEnvironment>& e) {
  if (!e) return "p" + std::to_string(getpid());
  if (!e->job.empty()) return e->job;
  return e->address.empty() ? "p" + std::to_string(getpid()) : e->address;
}

// Before other threads are there. What is wrong with the environment is said later.
void set_title() {
  try {
    const auto e = LaunchEnvironment::read();
    const std::string who = e ? "w" + std::to_string(e->rank) + " of " + std::to_string(e->world)
                              : std::to_string(LaunchEnvironment::workers()) + " workers";
    internal::watch::add_to_title("[" + who + ", job " + job_name(e) + "]");
  } catch (const Error&) {
  }
}

// What can be asked while a worker lives: by its door, and by SIGUSR1.
class Watched {
 public:
  Watched(Signals& signals, internal::actors::Worker& worker,
          const std::optional<LaunchEnvironment>& environment)
      : signals_(signals),
        door_(internal::watch::WatchDoor::open(
            worker, job_name(environment),
            {{"trace", internal::trace_of},
             {"attach", [&environment](const std::string&, internal::watch::Questions& questions) {
                return internal::watch::Attachment::to(questions.worker(), questions.job(),
                                                       environment ? &*environment : nullptr)
                    .json();
              }}})) {
    signals_.on_question([this] {
      if (door_) door_->log_waits();
    });
  }
  ~Watched() { signals_.on_question(nullptr); }

 private:
  Signals& signals_;
  std::unique_ptr<internal::watch::WatchDoor> door_;
};

// What the environment says of this process; wrong: an exit code.
struct Found {
  std::optional<LaunchEnvironment> environment;
  int alone = 0;       // workers of a process that nobody launched
  std::string attach;  // the job of which it is a guest
  int code = 0;
};

Found read_environment() {
  Found found;
  try {
    found.environment = LaunchEnvironment::read();
    if (!found.environment) found.alone = LaunchEnvironment::workers();
    if (!found.environment) found.attach = LaunchEnvironment::attach();
    ops::check_environment();
    (void)LaunchEnvironment::leak_check();
    internal::log::debug("[launch] begins");  // the first line says what is wrong with TROUPE_LOG
    if (const auto why = found.environment ? "" : LaunchEnvironment::why_alone(); !why.empty())
      internal::log::warning(why);
    // Into a launcher's pipe, too, lines leave as they are written.
    if (found.environment) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  } catch (const Error& e) {
    complain("troupe", e.what());
    found.code = kExitUsage;
  }
  return found;
}

// One process of a cluster, from the meeting to the end.
class Launched {
 public:
  Launched(Signals& signals, const Found& found, ClusterOptions options)
      : signals_(signals),
        environment_(found.environment),
        alone_(found.alone),
        attach_(found.attach),
        options_(std::move(options)) {
    who_ = process_name = "w" + std::to_string(environment_ ? environment_->rank : 0);
  }

  int run(internal::actors::TypeRegistry hosting, const std::function<void(Cluster&)>& driver) {
    try {
      check_room_for_threads();
      return environment_ && environment_->rank > 0 ? serve(std::move(hosting))
                                                    : drive_cluster(std::move(hosting), driver);
    } catch (...) {  // std::bad_alloc, too
      const Error e = current_error();
      if (signals_.received()) return 128 + signals_.received();
      complain(who_, e.what());
      return joined_ ? exit_code_of_exception() : kExitRendezvous;
    }
  }

 private:
  int serve(internal::actors::TypeRegistry hosting);
  int drive_cluster(internal::actors::TypeRegistry hosting, const std::function<void(Cluster&)>& driver);
  EndWatch& watch_over(const std::vector<internal::actors::Worker*>& workers) {
    const Duration patience = std::max<Duration>(options_.shutdown_timeout, std::chrono::milliseconds(100));
    return watch_.emplace(who_, workers, patience);
  }
  int ended(int code) {
    watch_->end(code);
    watch_->workers_go();
    return code;
  }
  int code_of(const std::function<int()>& serving) {
    try {
      return serving();
    } catch (...) {
      const Error e = current_error();
      const int code = signals_.received() ? 128 + signals_.received() : exit_code_of_exception();
      if (!signals_.received()) complain(who_, e.what());
      return code;
    }
  }

  Signals& signals_;
  const std::optional<LaunchEnvironment>& environment_;
  const int alone_;
  const std::string attach_;
  const ClusterOptions options_;
  std::string who_;
  bool joined_ = false;
  std::optional<EndWatch> watch_;  // until the workers of this process have ended
};

int Launched::serve(internal::actors::TypeRegistry hosting) {
  Promise<int> stop;
  internal::net::Rendezvous launcher(internal::net::kWorkerWords);  // hears of this worker until its end
  const auto process = WorkerProcess::join(*environment_, std::move(hosting), options_);
  launcher.complete();
  joined_ = true;
  check_room(kRoom);
  const Watched watched(signals_, process->worker(), environment_);
  EndWatch& watching = watch_over({&process->worker()});
  signals_.on_signal([&] {
    // The driver's job may save first what lives here.
    signals_.granted(true);
    const auto answer = internal::kAskToStop.ask(process->worker(), kDriverWorker, signals_.received());
    if (const Result<bool>& waits = answer.wait(); waits.ok() && waits.value())
      return internal::net::say_stopping();
    signals_.granted(false);
    watching.end(128 + signals_.received());
    stop.set(128 + signals_.received());
  });
  process->let_go().on_ready([&](const Result<void>&) {
    if (!signals_.received()) return;
    watching.end(128 + signals_.received());
    stop.set(128 + signals_.received());
  });
  // A method that this thread runs may keep serve() from returning.
  process->ended().on_ready([&](const Result<int>& r) { watching.end(r.ok() ? r.value() : kExitPeerLost); });
  const int code = code_of([&] { return process->serve(stop.future()); });
  signals_.on_signal(nullptr);
  return ended(code);
}

int Launched::drive_cluster(internal::actors::TypeRegistry hosting,
                            const std::function<void(Cluster&)>& driver) {
  std::optional<internal::net::Rendezvous> launcher;  // hears of the driver until the end
  std::unique_ptr<Cluster> cluster;
  if (environment_) {
    launcher.emplace(internal::net::kDriverWords);
    cluster = Cluster::coordinate(*environment_, std::move(hosting), options_);
    launcher->complete();
  } else if (!attach_.empty()) {
    cluster = attach(attach_, options_);
  } else {
    cluster = Cluster::in_process(alone_, std::move(hosting), options_);
  }
  joined_ = true;
  check_room(kRoom);
  std::optional<Watched> watched;  // a guest is asked nothing
  if (attach_.empty()) watched.emplace(signals_, cluster->worker(), environment_);
  EndWatch& watching = watch_over(cluster->workers_here());
  return ended(drive(*cluster, signals_, watching, driver, options_.shutdown_timeout));
}

int launch_with(Signals& signals, internal::actors::TypeRegistry hosting,
                const std::function<void(Cluster&)>& driver, ClusterOptions options) {
  signals.on_signal([&] { _exit(128 + signals.received()); });  // until there is something to end in order
  const Found found = read_environment();
  if (found.code) return found.code;
  return Launched(signals, found, std::move(options)).run(std::move(hosting), driver);
}

}  // namespace

namespace {

// Where there is no memory for a handful of bytes, nothing can be told to anybody, but the reason still can.
[[noreturn]] void terminate() {
  end_refused_child("std::terminate()");  // a thread that only its parent has, for instance
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
    complain(process_name,
             "std::terminate() was called without an exception: a std::thread was destroyed before join() or "
             "detach(), for instance");
  } catch (const std::bad_alloc&) {
    end_without_memory();
  } catch (...) {
    const std::string text =
        current_error().what() + std::string(
                                     "; nobody caught it on its thread, which ends the process: catch it "
                                     "in the function that the thread runs");
    complain(process_name, text.c_str());
  }
  std::abort();
}

}  // namespace

int launch(const std::function<void(Cluster&)>& driver, ClusterOptions options) {
  return launch({}, driver, options);
}

int launch(internal::actors::TypeRegistry hosting, const std::function<void(Cluster&)>& driver,
           ClusterOptions options) {
  try {
    check_process("launch");
    guard_output();
    std::set_terminate(terminate);
    load_unwinder();
    set_title();
    const internal::StopCatcher catcher(true);
    Signals signals;
    return launch_with(signals, std::move(hosting), driver, std::move(options));
  } catch (...) {  // no thread for signals
    complain("troupe", current_error().what());
    return kExitFailed;
  }
}

}  // namespace troupe
