// A worker's part in the checkpoints of a job.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/cell/extension.h"
#include "actors/worker/worker.h"
#include "autograd/distributed/optim/owned_state.h"
#include "core/base/mutex.h"
#include "troupe/checkpoint/job_messages.h"
#include "troupe/checkpoint/snapshot_room.h"

namespace troupe::internal {

/// What a checkpoint is written of.
struct Snapshot {
  /// Moves everything of an owner into it, behind its path and a dot.
  void add(const std::string& path, OwnedState from);

  OwnedState state = {};
  std::shared_ptr<SnapshotRoom> room = std::make_shared<SnapshotRoom>();
};

/// Snapshots are taken in the mailboxes of the actors, files are written on a thread that training goes
/// before.
class JobSaver final : public actors::Extension {
 public:
  /// `dir`: the only folder that it writes to and reads from; empty: none, and every request is `invalid`.
  static void install(actors::Worker& worker, std::string dir);
  /// Waits for what is being written.
  void stop() override;

 private:
  JobSaver(actors::Worker& worker, std::string dir) : worker_(worker), dir_(std::move(dir)) {}
  void given(const Ref<actors::Invocation>& call);
  void snapshot(const Ref<actors::Invocation>& call, uint64_t process);
  void write(const Ref<actors::Invocation>& call, const std::string& job, int64_t step);
  void load(const Ref<actors::Invocation>& call, const std::string& job, int64_t step);
  void drop();
  std::string folder_of(const std::string& job) const;
  void on_thread(std::function<void()> work);

  actors::Worker& worker_;
  const std::string dir_;
  internal::Mutex mutex_;
  Snapshot taken_;
  internal::Mutex thread_mutex_;  // of those below
  std::thread thread_;
  bool stopped_ = false;
};

/// The files of one who writes, "w1.model.safetensors" and "w1.state.safetensors": those that have something
/// in them.
JobFiles write_files(const std::string& folder, const std::string& who, OwnedState state);
/// Where the checkpoints of a job are in `dir`. `invalid` unless `job` is empty or a plain name.
std::string job_folder(const std::string& dir, const std::string& job);
/// Tells processes apart.
uint64_t this_process();
/// Which of several threads are in a hurry: this one is not.
void yield_to_training();

}  // namespace troupe::internal
