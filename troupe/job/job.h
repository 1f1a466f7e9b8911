// Job: a training loop that goes on after a loss from its last checkpoint.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "data/datasets/loader.h"
#include "troupe/checkpoint/checkpoints.h"
#include "troupe/cluster/cluster.h"
#include "troupe/launch/stop.h"

namespace troupe {

class Job;
namespace internal {
/// `f` runs before the state is looked at, to be saved or loaded; on the driver's thread.
void before_checkpoints(Job& job, std::function<void()> f);
}  // namespace internal

/// What is there when its loop begins is the job: all actors of all workers, and what the driver has that is
/// Stateful (optimizers, schedules, Keep) or a module. It is saved as it is between two steps, while training
/// goes on, and a loop that resumes begins at the step of the newest checkpoint with everything as it was.
///
///   Job job(cluster);                                     // folder and all: ClusterOptions::checkpoints
///   for (int64_t step : job.steps(1000)) { ... }
///
/// Actors that have a model together, replicas and ranks, may be others then, in other numbers, with other
/// pieces of it.
///
/// Variables of the driver and members of actors that no Keep names begin anew, so the results of a resumed
/// run would be others. Actors come before the loop and stay until its end; a context ends within its step.
///
/// Of one thread. Ends once the checkpoint is on the disk that is being written.
class Job {
 public:
  /// `name`: a folder within the folder of checkpoints, for a program's second loop.
  explicit Job(Cluster& cluster, std::string name = "");
  /// Of a program without a cluster.
  explicit Job(Checkpoints checkpoints);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  static constexpr int64_t no_end = std::numeric_limits<int64_t>::max();

  class Iterator {
   public:
    /// `loop`: there as long as the loop goes on.
    Iterator(Job* job, int64_t step, std::shared_ptr<const void> loop = nullptr)
        : job_(job), step_(step), loop_(std::move(loop)) {}
    int64_t operator*() const { return step_; }
    /// Ends the step: throws what keeps checkpoints from being made, if it was the first one of a run or the
    /// third in a row, or of the last step; logs others. The program ends here once it is asked to
    /// (stopping).
    Iterator& operator++() {
      job_->ended(++step_);
      return *this;
    }
    bool operator==(const Iterator& o) const { return step_ == o.step_; }

   private:
    Job* job_;
    int64_t step_;
    std::shared_ptr<const void> loop_;
  };
  class Steps {
   public:
    Steps(Job& job, int64_t total) : job_(&job), total_(total) {}
    Iterator begin() const {
      const int64_t first = job_->begin(total_);
      return {job_, first, job_->loop()};
    }
    Iterator end() const { return {job_, total_}; }

   private:
    Job* job_;
    int64_t total_;
  };
  /// 0, 1, ..., total - 1, or from the step on that the newest checkpoint was made before. One loop for each
  /// Job. Its begin loads, or makes the first checkpoint. It throws `invalid` for a folder that has
  /// checkpoints without Checkpoints::resume, and CheckpointRefused for one that does not fit or is not as it
  /// was written, with the program good for nothing.
  Steps steps(int64_t total = no_end) { return {*this, total}; }

  struct Batch {
    Tensor x, y;
    int64_t epoch;
    bool last;  ///< of the epoch
  };
  class Batches {
   public:
    class Iterator {
     public:
      Iterator(const Batches* all, Job::Iterator at) : all_(all), at_(at) {}
      Batch operator*() const { return all_->batch(*at_); }
      Iterator& operator++() {
        ++at_;
        return *this;
      }
      bool operator==(const Iterator& o) const { return at_ == o.at_; }

     private:
      const Batches* all_;
      Job::Iterator at_;
    };
    Batches(Job& job, datasets::Loader loader, int64_t epochs)
        : steps_(job, loader.batches() * epochs), loader_(std::move(loader)) {}
    Iterator begin() const& { return {this, steps_.begin()}; }
    Iterator end() const& { return {this, steps_.end()}; }

   private:
    Batch batch(int64_t step) const;
    Steps steps_;
    datasets::Loader loader_;
    mutable std::unique_ptr<datasets::Epoch> epoch_;  // of the last batch
    mutable int64_t number_ = -1;
  };
  /// The same over the batches of all epochs: a step for each.
  Batches batches(const datasets::Loader& loader, int64_t epochs) { return {*this, loader, epochs}; }

  /// Calls `step`, the step of a loop: forward and backward passes, then the steps of optimizers. Where
  /// workers come and go (`troupe run --elastic`), it calls it again if a worker with a replica was lost in
  /// it, once all that live are as they were before, and another one has come in its place, or the others go
  /// on. Behind a step that stands nothing is made again. Variables of the driver that the function changes
  /// need a Keep, unless it does so behind the last optimizer's step. Else it costs nothing.
  ///
  ///   for (auto [x, y, epoch, last] : job.batches(loader, 10))
  ///     job.attempt([&] { ... optimizer.step(context); });
  ///
  /// Throws `disconnected` where that cannot be: with replicas that divide state (Shard), with actors that
  /// are no replicas of a DataParallel, and where too few workers are left.
  void attempt(const std::function<void()>& step);

  /// Whether its loop went on from a checkpoint.
  bool resumed() const;

  /// Whether Ctrl-C or SIGTERM has asked for the end: it comes behind this step, with a checkpoint of it, out
  /// of the loop; what stands behind the loop does not run. A long step may look, and be shorter.
  bool stopping() const;

  /// A witness: a number that a step comes to, its loss say. It is written down at once, and a step that is
  /// made again after a loss has to come to the same one: else CheckpointRefused, since something that
  /// training changes is in no checkpoint. tools::Training does this with every loss.
  void check(double number);
  /// The same for the job whose loop this thread is in; nothing if there is none.
  static void check_current(double number);

 private:
  friend void internal::before_checkpoints(Job& job, std::function<void()> f);
  struct Parts;
  int64_t begin(int64_t total);
  void ended(int64_t step);
  std::shared_ptr<const void> loop();
  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe
