// One attempt at a step of a job whose workers may be lost in it, as its driver sees it.
#pragma once
#include <optional>

namespace troupe::internal {

/// Pure: what has happened goes in, what is to be done next comes out. The driver alone decides about a step,
/// since every step passes through it:
///
///   pass --prepare--> prepared --commit--> stands
///    |  lost: rest, undo, form, again        |  lost: rest, form; the step stands
///
/// All members keep a point for each step that begins, two at most: what forward passes change. To prepare is
/// to keep that of the next step; once all have, the step is decided, and each member that lives can make it
/// alone, since it has the whole model. So a loss behind that redoes nothing.
class AttemptMachine {
 public:
  enum class Event {
    begin,      ///< all members have kept a point for this step, and nothing has been asked of them since
    stale,      ///< they have not
    missing,    ///< a member is lost, or is to leave, before the step
    prepared,   ///< all have kept the point of the next step
    committed,  ///< all that live have made the step
    lost,       ///< a member was lost; behind `committed`, or instead of what was to be done
    returned,   ///< the function has come to its end
    done,       ///< what was to be done
    refused,    ///< it cannot be done
  };
  enum class Action {
    run,      ///< the function
    keep,     ///< points of this step, at all members
    rest,     ///< wait until nothing is under way on those that live
    undo,     ///< they go back to the points of this step
    form,     ///< a set of those that live, and whoever takes the place of others; keep
    finish,   ///< the step stands
    give_up,  ///< what is left is the newest checkpoint
    go_on,    ///< nothing: the function runs
  };

  Action on(Event event);
  /// How often the function had to run again.
  int redone() const { return redone_; }

 private:
  enum class State { idle, keeping, pass, prepared, stands, resting, undoing, forming, over };
  Action repair(bool undoes, bool again);
  std::optional<Action> repaired(Event event);
  Action end(Action how);

  State state_ = State::idle;
  bool undo_ = false;   // survivors have moved since their points of this step
  bool again_ = false;  // the function is to run, behind the forming
  bool lost_ = false;   // behind the decision
  int redone_ = 0;
};

}  // namespace troupe::internal
