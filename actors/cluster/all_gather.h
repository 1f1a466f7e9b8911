// Where workers meet: barriers, and small values that everybody is to have.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/worker/worker.h"

namespace troupe::internal::actors {

/// One meeting place, as its leader sees it. A pure state machine: the n-th arrivals of all members are a
/// round. Not synchronized.
class AllGather {
 public:
  using Ticket = uint64_t;  ///< of an arrival, unique in the gathering
  struct Round {
    std::vector<Ticket> tickets;  ///< by number of the worker
    ValueList values;
  };

  explicit AllGather(std::set<WorkerId> members);

  /// The round, if everybody is there now. `invalid` for others than members.
  std::optional<Round> arrive(WorkerId worker, Ticket ticket, Value value);
  /// The arrival waits no more: who is missing from its round (also those that gave up before), as long as it
  /// has not ended.
  std::vector<WorkerId> withdraw(WorkerId worker, Ticket ticket);
  /// A member will not come any more: those that wait, in vain.
  std::vector<Ticket> lost(WorkerId worker);
  /// Nobody waits.
  bool empty() const;

 private:
  struct Arrival {
    Ticket ticket;
    Value value;
  };
  std::map<WorkerId, std::deque<Arrival>> waiting_;  // an entry for each member
};

/// What a worker needs to lead gatherings. Part of every worker's set-up.
void install_gathering(Worker& worker);

/// Gives `value` to all `members` (of which this worker is one), and gets theirs: ready, by number of the
/// worker, when all have called it with the same name and members as often as this worker has. Members may
/// have any number of such calls under way, from any threads. The member with the smallest number leads.
///
/// `deadline` after `timeout`, naming those that are missing; `disconnected` if one was lost; `invalid` if
/// this worker is no member.
Future<ValueList> gather(Worker& worker, const std::string& name, const std::set<WorkerId>& members,
                         Value value, Duration timeout = std::chrono::seconds(60));
/// `owner`, an actor of this worker, takes part in the gatherings of that name and members for as long as it
/// lives. `invalid`, with both labels, if another actor of this worker does: each member of a group of actors
/// is on a worker of its own.
void take_part(Worker& worker, const std::string& name, const std::set<WorkerId>& members,
               const std::shared_ptr<ActorCell>& owner);
/// gather() without values: ready when all are there.
Future<void> barrier(Worker& worker, const std::string& name, const std::set<WorkerId>& members,
                     Duration timeout = std::chrono::seconds(60));

}  // namespace troupe::internal::actors
