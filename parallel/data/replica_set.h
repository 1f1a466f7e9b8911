// Actors that hold the same model several times, whose members may change between two steps.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/async/future_combinators.h"
#include "core/base/listed.h"
#include "core/graph/stateful.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// Who is a member from now on, in ReplicaSet::reform().
struct ReplicaSeat {
  std::optional<size_t> stays;  ///< the number until now of one that stays; empty: a new one
  std::string worker;           ///< of a new one
  std::string path;             ///< that it takes from another one; empty: its own
  StateDict own;                ///< what that one had for itself; empty: it draws random numbers of its own
};

/// What attempts at steps take back, and form anew. Of one thread.
class ReplicaSet : public internal::Listed<ReplicaSet> {
 public:
  ReplicaSet() = default;
  ReplicaSet(const ReplicaSet&) = delete;
  virtual ~ReplicaSet() = default;

  virtual const std::vector<AnyRef>& members() const& = 0;
  /// Other actors that are made for it, and that a step leaves as they were.
  virtual std::vector<AnyRef> helpers() const { return {}; }
  /// Whether each that goes needs one in its place.
  virtual bool stays_as_many() const = 0;
  /// Whether more come than it began with, where a job takes in more workers.
  virtual bool can_grow() const = 0;
  /// Members of one unit, which has a number, come and go together.
  virtual size_t unit_of(size_t member) const { return member; }
  /// Members of one place, which has a number, are on one worker.
  virtual size_t place_of(size_t member) const { return member; }
  /// Whether the others have what a member has.
  virtual bool can_replace() const = 0;
  virtual Future<void> ready() const = 0;
  /// These from now on, one of which at least stays. If it fails, no step can be made before another one has
  /// gone well.
  virtual void reform(const std::vector<ReplicaSeat>& seats) = 0;

  /// Seats of all as they are.
  std::vector<ReplicaSeat> seats() const;
  /// All keep what forward passes change, as step `number` begins; what each has for itself.
  Future<std::vector<StateDict>> keep_points(int64_t number) const;
  /// What a member has for itself now; empty if it is lost. Waits.
  StateDict own_state(size_t member) const;
  /// Members of these numbers go back to that point.
  Future<void> undo(int64_t number, const std::vector<size_t>& ranks) const;
};

/// Whether its worker is there.
bool lives(const AnyRef& actor);
/// Calls ask(i) for each of the actors, and waits for all.
template <class Ask>
void ask_all(const std::vector<AnyRef>& actors, const Ask& ask) {
  std::vector<decltype(ask(0))> asked;
  for (size_t i = 0; i < actors.size(); ++i) asked.push_back(ask(i));
  (void)all(asked).get();
}

}  // namespace troupe::parallel
