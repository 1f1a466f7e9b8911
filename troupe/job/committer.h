// When a job makes a checkpoint, and what becomes of one that cannot be made: the protocol, without threads,
// workers or files.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe::internal {

/// Of worker 0. A checkpoint at a time: the cluster comes to rest, all workers take snapshots, then training
/// goes on while they write, then the index makes a checkpoint of their files.
class Committer {
 public:
  enum class State {
    idle,
    settling,  ///< the driver waits for rest
    snapshot,  ///< the driver waits for all snapshots
    writing,   ///< the driver trains, or waits at the end of its loop
    index,     ///< likewise, while the index is written
  };
  enum class Event {
    due,        ///< a step has ended, and it is time for a checkpoint
    loop_ends,  ///< the last step has ended
    at_rest,
    not_at_rest,  ///< within its time
    snapshots,    ///< all have been taken
    refused,      ///< something cannot be saved
    written,      ///< by all workers
    not_written,  ///< by one of them; or the index
    committed,    ///< the index is on the disk
    worker_lost,
  };
  /// What is to be done, in this order.
  enum class Action {
    settle,
    take_snapshots,
    write,  ///< and the driver goes on
    write_index,
    announce,  ///< to the launcher; and older checkpoints are removed
    drop,      ///< snapshots that will not be written
    abandon,   ///< the folder that was begun
    miss,      ///< it is said why there is no checkpoint
    skip,      ///< none now: one is being made
    wait,      ///< the driver waits for the next event
    fail,      ///< the driver throws why
  };
  using Actions = std::vector<Action>;

  /// `invalid` for an event that cannot come in this state.
  Actions on(Event event);
  State state() const { return state_; }
  /// Checkpoints that were not made since the last one that was, or the beginning.
  int misses() const { return misses_; }
  int64_t commits() const { return commits_; }
  int64_t skipped() const { return skipped_; }

  /// Missed ones in a row that are too many; also the first one of a run, which was never made, and the last.
  static constexpr int kMostMisses = 3;

 private:
  Actions missed(Actions before);
  Actions go_on(Actions before);
  State state_ = State::idle;
  bool ending_ = false;  // the loop ends once the checkpoint is written that is being made
  bool last_ = false;    // the one that is being made is the loop's last
  int misses_ = 0;
  int64_t commits_ = 0, skipped_ = 0;
};

}  // namespace troupe::internal
