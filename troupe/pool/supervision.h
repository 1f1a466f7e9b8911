// The pure part of a pool: it says which task goes to which member, and what becomes of both at a loss.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/base/clock.h"

namespace troupe {

/// What is started anew when a member of a pool is lost.
enum class Restart {
  one,   ///< the member
  all,   ///< all members: they depend on each other
  none,  ///< none: the others go on
};

/// How often that may be: a pool whose members die as soon as they are made ends with an error.
struct RestartPolicy {
  Restart restart = Restart::one;
  int most = 5;  ///< losses within `within`, a worker's with all its members as one; one more ends the pool
  Duration within = std::chrono::seconds(60);
};

namespace internal {

/// Pure: what has happened goes in, what is to be done comes out.
class Supervision {
 public:
  using Task = uint64_t;
  struct Action {
    enum class Kind {
      start,    ///< a member is to be made, of that incarnation
      end,      ///< a member that lives is to go, since all are started anew
      send,     ///< the task goes to the member
      fail,     ///< the task's member was lost, and it may have run
      give_up,  ///< members were lost too often, or none is left: the pool takes no task any more
    };
    Kind kind;
    size_t member = 0;
    int64_t incarnation = 0;
    Task task = 0;
  };
  using Actions = std::vector<Action>;

  /// `at_once`: tasks for whoever is free that a member has at a time.
  Supervision(size_t members, const RestartPolicy& policy, int at_once);

  Actions begin();
  /// A task for `member`, or for whoever is free; `again`: how often it may be sent again after a loss.
  Actions add(Task task, std::optional<size_t> member, int again);
  /// The member takes tasks.
  Actions started(size_t member, int64_t incarnation);
  struct Seat {
    size_t member;
    int64_t incarnation;
  };
  /// A worker was lost, with these; or one could not be made. Together, since what goes to another member
  /// must not go to one of them.
  Actions lost(const std::vector<Seat>& seats, TimePoint now);
  /// The member has done the task. Empty: it was taken from that incarnation before.
  std::optional<Actions> answered(Task task, size_t member, int64_t incarnation);

  /// Nothing is sent between these.
  void pause() { paused_ = true; }
  Actions resume();

  bool given_up() const { return given_up_; }
  int64_t incarnation(size_t member) const { return members_.at(member).incarnation; }
  bool ready(size_t member) const { return members_.at(member).state == State::ready; }
  /// Lost for good.
  bool gone(size_t member) const { return members_.at(member).state == State::gone; }
  /// No member is about to be started.
  bool settled() const;
  size_t waiting() const;
  size_t under_way() const { return running_.size(); }

 private:
  enum class State { starting, ready, gone };
  struct Member {
    State state = State::starting;
    int64_t incarnation = 0;
    std::set<Task> tasks;     // under way
    int free_tasks = 0;       // of these, those that any member could have had
    std::deque<Task> queued;  // for it alone
  };
  struct Given {
    std::optional<size_t> member;  // the only one that will do
    int again = 0;
  };
  void send(Task task, size_t member, Actions& actions);
  void send_all(Actions& actions);
  std::optional<size_t> most_free() const;
  void take_from(Member& member, Actions& actions);
  void start(size_t member, Actions& actions);
  void go(size_t member, Actions& actions);
  void give_up(Actions& actions);

  const RestartPolicy policy_;
  const int at_once_;
  std::vector<Member> members_;
  std::map<Task, Given> running_, queued_;
  std::deque<Task> free_;  // for whoever is free
  std::deque<TimePoint> losses_;
  bool paused_ = false, given_up_ = false;
};

}  // namespace internal
}  // namespace troupe
