// Steps of a job that are made again when a worker is lost in them, and sets of replicas that go on with
// whoever is there.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autograd/distributed/optim/owned_state.h"
#include "parallel/data/replica_set.h"
#include "troupe/attempt/machine.h"
#include "troupe/attempt/vote.h"
#include "troupe/cluster/cluster.h"
#include "troupe/pool/paused_pools.h"

namespace troupe::internal {

/// The driver's part: what AttemptMachine says is done to the sets of replicas of the cluster. Of one
/// thread.
class Attempts {
 public:
  /// `moved`: told behind each forming; `fewer`: their number is another one than before.
  using Moved = std::function<void(const std::vector<MovedActor>& actors, bool other_number)>;
  Attempts(Cluster& cluster, Moved moved);

  /// Calls it until it has come to its end with a step that stands. Throws what it throws, but losses of
  /// workers that can be mended.
  void run(const std::function<void()>& step);

 private:
  using Set = troupe::parallel::ReplicaSet;
  using Action = AttemptMachine::Action;
  using Event = AttemptMachine::Event;
  struct Missing {
    size_t rank;  // among those that stayed
    size_t place;
    std::string path;
    StateDict own;
    int64_t number;  // of the step that it is of
  };
  using MissingUnit = std::vector<Missing>;  // that went together
  using Seats = std::vector<troupe::parallel::ReplicaSeat>;

  Event begin();
  Event call(const std::function<void()>& step);
  Event count_steps();
  Event rest();
  Event undo();
  Event form();
  /// The event of what `f` does: done, lost, or refused, with why_.
  Event perform(const std::function<Event()>& f);
  /// Whether one is lost that a forming was about to take.
  bool newcomer_lost() const;
  Event refuse(const std::string& why);

  std::vector<Set*> sets() const;
  bool lives(const std::string& worker) const;
  std::set<std::string> members() const;
  /// Members that are lost, or are to leave.
  std::set<std::string> absent() const;
  /// Workers that are there, without those, and without whoever leaves and has no replica any more.
  size_t in_use(const std::set<std::string>& absent) const;
  bool may_grow() const;
  bool has_pieces(const std::string& worker) const;
  std::string what_cannot_be_undone();
  /// Spares for those; waits for newcomers where there would be too few workers without.
  bool choose(const std::set<std::string>& absent);
  void ask_own();
  Seats seats(Set& set, const std::set<std::string>& absent);
  void drop(Set& set, Seats& seats, const std::set<size_t>& units, std::vector<std::string>& available);
  void seat_free(Set& set, Seats& seats, const std::vector<std::string>& available);
  void form_set(Set& set, const std::set<std::string>& absent);
  void tell(const std::string& gone);
  void keep();

  Cluster& cluster_;
  const Moved moved_;
  std::map<Set*, std::vector<StateDict>> own_;  // of each member, as step number_ begins
  std::map<Set*, std::vector<MissingUnit>> missing_;
  std::shared_ptr<Vote> vote_;
  std::optional<AttemptMachine> machine_;
  std::optional<OwnedState> driver_;  // as the step began
  std::optional<Error> why_;          // of what was lost or refused last
  // ---- of a forming, which losses may interrupt
  std::map<std::string, std::string> in_place_;  // who comes in whose place
  std::vector<std::string> free_;                // who comes for nobody that is lost just now
  std::set<std::string> idle_;                   // of those that came, who has no replica
  std::vector<MovedActor> told_;
  bool other_number_ = false, undone_ = false;

  std::optional<PausedPools> pools_;  // from rest to the end of the forming
  int64_t number_ = 0;
  uint64_t calls_ = 0;  // that this worker had made when the last step ended
  bool fresh_ = false;  // the points are those of number_
  bool running_ = false;
};

}  // namespace troupe::internal
