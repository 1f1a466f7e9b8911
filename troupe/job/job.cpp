#include "troupe/job/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "actors/cluster/quiesce.h"
#include "core/base/build_id.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "data/checkpoint/checkpoint_files.h"
#include "net/rendezvous.h"
#include "ops/environment.h"
#include "troupe/checkpoint/job_saver.h"
#include "troupe/checkpoint/rehearsal.h"
#include "troupe/job/committer.h"
#include "troupe/job/job_load.h"
#include "troupe/job/job_workers.h"
#include "troupe/job/witness.h"

namespace troupe {
namespace {

using internal::Committer;
using internal::JobActors;
using internal::JobFiles;
using internal::kDriver;
using internal::Snapshot;
using internal::actors::Worker;
using std::chrono::seconds;

constexpr Duration kRestAtBegin = seconds(60), kRest = seconds(10), kLeastPause = seconds(10);
constexpr int kPausePerCost = 30;

Duration monotonic() { return std::chrono::steady_clock::now().time_since_epoch(); }

}  // namespace

struct Job::Parts {
  Parts(Cluster* cluster, Checkpoints options, std::string name)
      : cluster_(cluster), options_(internal::rehearsed(std::move(options))), name_(std::move(name)) {
    if (options_.resume && options_.dir.empty())
      throw_invalid(
          "[job] it is to go on from checkpoints (Checkpoints::resume), and has no folder of them: set "
          "Checkpoints::dir");
    if (options_.every < 0 || options_.keep < 1)
      throw_invalid("[job] checkpoints every " + std::to_string(options_.every) + " steps, of which " +
                    std::to_string(options_.keep) + " stay; expected 0 or more, and 1 or more");
  }
  ~Parts() {
    if (!options_.dir.empty()) end_refused_child("the end of a job");  // it has not the thread that writes
    leave();
    finish_writing();
  }

  int64_t begin(int64_t total);
  void ended(int64_t step);
  bool resumed() const { return resumed_; }
  std::shared_ptr<const void> loop();
  bool stopping() const;
  void check(double number);
  void attempt(const std::function<void()>& step);
  static Parts*& current() {
    static thread_local Parts* loop = nullptr;
    return loop;
  }
  std::function<void()> before_checkpoints;

 private:
  using Event = Committer::Event;
  using Action = Committer::Action;

  bool elastic() const { return cluster_ && cluster_->elastic(); }
  // A loss is a miss of a checkpoint, and not the end.
  bool goes_on() const { return elastic() || has_pools_; }
  bool on_driver() const { return std::this_thread::get_id() == driver_thread_; }
  std::optional<Error> rest(Duration limit);
  void save(int64_t step, Event why);
  // What the protocol says next; on the driver's thread, and on the one that writes.
  void advance(Event event);
  void perform(const Committer::Actions& actions);
  void settle();
  void take_snapshots();
  void start_writing();
  void write();
  void wait();
  void miss();
  void throw_failure(int64_t step, Event why);
  std::string newest() const { return internal::newest_in(dir_); }
  Committer::Actions told(Event event);
  const char* resume() const { return options_.by_flags ? "--resume" : "Checkpoints::resume"; }
  void leave() {
    if (current() == this) current() = nullptr;
  }
  void finish_writing() {
    if (writer_.joinable()) writer_.join();
  }

  Cluster* const cluster_;
  internal::JobWorkers workers_{cluster_};
  const Checkpoints options_;
  const std::string name_;
  std::string dir_;                            // with the name
  std::optional<RefuseChildren> only_parent_;  // writes to the folder
  std::optional<datasets::CheckpointFolder> folder_;
  int64_t total_ = 0, first_ = 0, step_ = 0;
  bool begun_ = false, resumed_ = false, repeat_ = true;  // the last: steps made again have their bits
  internal::Given given_;                                 // when the job began
  std::optional<internal::Witness> witness_;
  std::weak_ptr<const StopSignal> stop_;  // as long as the loop goes on
  std::optional<internal::Attempts> attempts_;
  bool has_pools_ = false;  // when it settled last
  const std::optional<internal::Rehearsal> rehearsal_ = internal::Rehearsal::current();
  Snapshot driver_;                  // its part of one
  datasets::CheckpointIndex index_;  // of the checkpoint that is being made
  Duration started_{};
  std::thread::id driver_thread_;
  std::thread writer_;
  int64_t writing_step_ = 0;  // what it writes

  internal::Mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Committer committer_;
  std::optional<Error> why_;      // of what went wrong last
  std::optional<Error> failure_;  // for the driver to throw
  bool settle_next_ = false;      // the driver waits, and goes on with that
  Duration cost_{};
};

// ---- the loop

int64_t Job::Parts::begin(int64_t total) {
  if (begun_) throw_invalid("[job] it has had its loop: a second one takes a Job with a name of its own");
  check_process("job");
  begun_ = true;
  driver_thread_ = std::this_thread::get_id();
  total_ = total;
  if (options_.dir.empty()) return 0;
  dir_ = internal::job_folder(options_.dir, name_);
  only_parent_.emplace();
  folder_.emplace(dir_);
  const auto steps = datasets::committed_steps(dir_);
  if (!steps.empty() && !options_.resume && !internal::started_again())
    throw_invalid("[job] " + dir_ + " has checkpoints, the newest of step " + std::to_string(steps.back()) +
                  ": " + resume() + " goes on from there; another folder begins anew");
  if (before_checkpoints) before_checkpoints();
  if (auto problem = rest(kRestAtBegin)) throw *problem;
  given_ = internal::given_everywhere(workers_);
  if (steps.empty()) {
    save(0, Event::due);
  } else {
    auto loaded = internal::load_job(workers_, dir_, name_, steps.back(), total_, given_);
    workers_.layout = std::move(loaded.layout);
    given_ = std::move(loaded.given);
    repeat_ = loaded.repeat;
    resumed_ = true;
    started_ = monotonic();
    first_ = step_ = steps.back();
  }
  if (!options_.unwitnessed) witness_.emplace(dir_ + "/witness", step_, resumed_ && repeat_);
  current() = this;
  return step_;
}

void Job::Parts::ended(int64_t step) {
  if (options_.dir.empty()) return;
  check_process("job");
  throw_failure(step, Event::due);
  Duration pause;
  {
    std::lock_guard lock(mutex_);
    pause = std::max<Duration>(kLeastPause, kPausePerCost * cost_);
  }
  step_ = step;
  if (step == total_) leave();
  const bool rehearsed = rehearsal_ && step == rehearsal_->steps, stops = step != total_ && stopping();
  if (step == total_ || rehearsed || stops)
    save(step, Event::loop_ends);
  else if (options_.every > 0 ? step % options_.every == 0 : monotonic() - started_ >= pause)
    save(step, Event::due);
  if (stops) {
    internal::log::warning(fmt::format(
        "[job] ends as it was asked to ({}); {} has a checkpoint of step {}: {} goes on from there",
        internal::stop_asked() == SIGINT ? "Ctrl-C" : "SIGTERM", dir_, step,
        options_.resume ? "the same command" : resume()));
    internal::end_as_asked();
  }
  if (!rehearsal_) return;
  wait();
  const auto attempt = static_cast<size_t>(internal::restarts());
  if (attempt < rehearsal_->kills.size() && step == rehearsal_->kills[attempt]) raise(SIGKILL);
  if (rehearsed && step != total_) throw internal::RehearsalEnd();
}

std::shared_ptr<const void> Job::Parts::loop() {
  if (options_.dir.empty())
    return std::make_shared<const internal::UnsavedLoop>(options_.by_flags ? "--checkpoint DIR"
                                                                           : "Checkpoints::dir");
  auto made = std::make_shared<const StopSignal>();
  stop_ = made;
  return made;
}

bool Job::Parts::stopping() const {
  const auto signal = stop_.lock();
  return signal && signal->received();
}

void Job::Parts::check(double number) {
  if (cluster_) cluster_->worker().progress().state_loss(number);
  if (!witness_ || !repeat_) return;
  const auto before = witness_->note(step_, number);
  if (!before) return;
  throw CheckpointRefused(
      ErrorKind::invalid,
      fmt::format(
          "[job] step {} is made again since checkpoint {}, and comes to {:.17g}, the first time to "
          "{:.17g}: a variable that training changes has no Keep, or a result depends on the time. If "
          "the program or its flags are others now, remove {} and go on",
          step_, first_, number, *before, witness_->path()));
}

void Job::Parts::attempt(const std::function<void()>& step) {
  if (!elastic()) return step();
  if (!attempts_)
    attempts_.emplace(*cluster_, [this](const auto& actors, bool other_number) {
      workers_.moved(actors);
      repeat_ = repeat_ && !other_number;  // others sum in another order
    });
  attempts_->run(step);
}

std::optional<Error> Job::Parts::rest(Duration limit) {
  if (!cluster_) return std::nullopt;
  Worker& worker = cluster_->worker();
  return internal::actors::quiesce(worker, worker.clock().now() + limit);
}

// ---- saving

void Job::Parts::save(int64_t step, Event why) {
  Committer::Actions actions;
  {
    std::lock_guard lock(mutex_);
    if (committer_.state() == Committer::State::idle) index_ = {.step = step};
    actions = committer_.on(why);
  }
  perform(actions);
  // A last step that ended while the checkpoint before it was written.
  for (bool again = why == Event::loop_ends; again;) {
    {
      std::unique_lock lock(mutex_);
      again = std::exchange(settle_next_, false);
      if (again) index_ = {.step = step};
    }
    if (again) perform({Action::settle});
  }
  throw_failure(step, why);
}

void Job::Parts::throw_failure(int64_t step, Event why) {
  std::optional<Error> failure;
  {
    std::lock_guard lock(mutex_);
    failure = std::exchange(failure_, std::nullopt);
  }
  if (!failure) return;
  const Error& e = *failure;
  if (e.kind() == ErrorKind::disconnected && goes_on() && why != Event::loop_ends) return;  // said, as a miss
  if (e.kind() == ErrorKind::disconnected || (why == Event::loop_ends && e.kind() != ErrorKind::cancelled))
    throw internal::ended_unsaved(step, dir_, e);
  throw e;
}

// Whoever waits for the state finds the failure with it.
Committer::Actions Job::Parts::told(Event event) {
  std::lock_guard lock(mutex_);
  Committer::Actions actions = committer_.on(event);
  if (std::ranges::find(actions, Action::fail) != actions.end()) failure_ = why_;
  return actions;
}

void Job::Parts::advance(Event event) { perform(told(event)); }

void Job::Parts::perform(const Committer::Actions& actions) {
  for (const Action action : actions) switch (action) {
      case Action::settle:
        if (on_driver()) {
          settle();
          break;
        }
        {
          std::lock_guard lock(mutex_);
          settle_next_ = true;
        }
        break;
      case Action::take_snapshots:
        take_snapshots();
        break;
      case Action::write:
        start_writing();
        break;
      case Action::write_index:
        write();
        break;
      case Action::announce:
        internal::net::say_committed();
        if (cluster_) cluster_->note_commit();
        try {
          folder_->prune(static_cast<int>(options_.keep));
        } catch (const Error& e) {
          internal::log::warning(std::string("[job] old checkpoints stay: ") + e.what());
        }
        break;
      case Action::drop:
        driver_ = {};
        workers_.tell(internal::kDropSnapshot);
        break;
      case Action::abandon:
        folder_->abandon(writing_step_);
        break;
      case Action::miss:
        miss();
        break;
      case Action::skip:
        break;
      case Action::wait:
        wait();
        break;
      case Action::fail:  // told() has noted it
        break;
    }
}

void Job::Parts::settle() {
  finish_writing();  // of the one before, which has ended
  started_ = monotonic();
  if (before_checkpoints) before_checkpoints();
  std::optional<internal::PausedPools> pools;
  if (cluster_) {
    pools.emplace(*cluster_, cluster_->worker().clock().now() + kRest);
    has_pools_ = !pools->none();
    workers_.moved(pools->where(), internal::JobWorkers::Newcomers::no);
    workers_.follow_servers();
  }
  auto problem = rest(kRest);
  if (!problem) return advance(Event::at_rest);
  if (problem->kind() == ErrorKind::cancelled) throw *problem;
  const bool lost = problem->kind() == ErrorKind::disconnected && !goes_on();
  {
    std::lock_guard lock(mutex_);
    why_ = std::move(problem);
  }
  advance(lost ? Event::worker_lost : Event::not_at_rest);
}

void Job::Parts::take_snapshots() {
  try {
    std::map<std::string, std::string> layout;
    bool repeat = true;
    for (const auto& [worker, actors] : workers_.ask_all(internal::kTakeSnapshot, internal::this_process())) {
      repeat = repeat && actors.repeat;
      for (const std::string& path : actors.paths)
        if (!layout.emplace(path, worker).second)
          throw_invalid("[job] two actors are called " + path +
                        ": several threads of the driver make actors of one type");
    }
    repeat_ = repeat_ && repeat;
    if (workers_.layout && *workers_.layout != layout) {
      std::vector<std::string> changes;
      for (const auto& [path, worker] : layout)
        if (!workers_.layout->contains(path)) changes.push_back(path + " has come");
      for (const auto& [path, worker] : *workers_.layout)
        if (!layout.contains(path)) changes.push_back(path + " has gone");
      throw_invalid("[job] since the loop began " + fmt::format("{}", fmt::join(changes, ", ")) +
                    "; a checkpoint has the actors that were there when it began, and they stay");
    }
    Snapshot driver;
    driver.add(kDriver, driver.room->take(internal::state_of_driver()));
    workers_.layout = layout;
    driver_ = std::move(driver);
    index_.layout = std::move(layout);
  } catch (...) {
    Error e = current_error();
    if (e.kind() == ErrorKind::cancelled) throw;
    const bool lost = e.kind() == ErrorKind::disconnected && !goes_on();
    {
      std::lock_guard lock(mutex_);
      why_ = std::move(e);
    }
    return advance(lost ? Event::worker_lost : Event::refused);
  }
  advance(Event::snapshots);
}

// All workers write, and the driver; then the index.
void Job::Parts::start_writing() {
  writing_step_ = index_.step;
  try {
    writer_ = start_thread("job", [this] {
      internal::yield_to_training();
      write();
      std::lock_guard lock(mutex_);
      cost_ = monotonic() - started_;
      changed_.notify_all();
    });
  } catch (...) {
    {
      std::lock_guard lock(mutex_);
      why_ = current_error();
    }
    perform({Action::drop});
    advance(Event::not_written);
  }
}

// Twice: the files, then the index.
void Job::Parts::write() {
  Event event = Event::written;
  try {
    if (index_.program.empty()) index_.program = internal::build_id();
    bool files;
    {
      std::lock_guard lock(mutex_);
      files = committer_.state() == Committer::State::writing;
    }
    if (files) {
      const std::string folder = folder_->begin(index_.step);
      const auto asked = workers_.ask(internal::kWriteSnapshot, name_, index_.step);
      std::optional<Error> failure;
      try {
        Snapshot driver = std::exchange(driver_, {});
        index_.files = internal::write_files(folder, kDriver, std::move(driver.state));
      } catch (...) {
        failure = current_error();  // the others still write to that folder
      }
      for (auto& [worker, files_of] : internal::JobWorkers::answers(asked))
        index_.files.insert(index_.files.end(), files_of.begin(), files_of.end());
      if (failure) throw *failure;
    } else {
      index_.instructions = ops::cpu_levels();
      index_.given = given_;
      index_.world = workers_.world();
      folder_->commit(index_);
      event = Event::committed;
    }
  } catch (...) {
    Error e = current_error();
    event = e.kind() == ErrorKind::disconnected && !goes_on() ? Event::worker_lost : Event::not_written;
    std::lock_guard lock(mutex_);
    why_ = std::move(e);
  }
  advance(event);
}

void Job::Parts::miss() {
  const std::string newest_one = newest();
  std::lock_guard lock(mutex_);
  internal::log::warning("[job] no checkpoint of step " +
                         std::to_string(on_driver() ? index_.step : writing_step_) + " in " + dir_ + " (" +
                         newest_one + "): " + why_->what());
}

// Until nothing is written any more, or the last step is to be saved.
void Job::Parts::wait() {
  internal::Lock lock(mutex_);
  changed_.wait(lock.native(), [&] { return settle_next_ || committer_.state() == Committer::State::idle; });
}

// ---- the interface

Job::Job(Cluster& cluster, std::string name)
    : parts_(std::make_unique<Parts>(&cluster, cluster.checkpoints(), std::move(name))) {}
Job::Job(Checkpoints checkpoints) : parts_(std::make_unique<Parts>(nullptr, std::move(checkpoints), "")) {}
Job::~Job() = default;

int64_t Job::begin(int64_t total) { return parts_->begin(total); }
void Job::ended(int64_t step) { parts_->ended(step); }
bool Job::resumed() const { return parts_->resumed(); }
bool Job::stopping() const { return parts_->stopping(); }
std::shared_ptr<const void> Job::loop() { return parts_->loop(); }
void Job::check(double number) { parts_->check(number); }
void Job::attempt(const std::function<void()>& step) { parts_->attempt(step); }
void Job::check_current(double number) {
  if (Parts* loop = Parts::current()) loop->check(number);
}
void internal::before_checkpoints(Job& job, std::function<void()> f) {
  job.parts_->before_checkpoints = std::move(f);
}

}  // namespace troupe
