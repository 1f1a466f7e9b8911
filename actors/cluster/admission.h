// Worker 0's part when workers join a complete cluster, or leave it before its end.
//
// A newcomer must be known to all before anybody can hear of it in a message, and must know all before it is
// used. So first everybody is told who it is, without listing it; then it gets the list of members and says
// that it has it; then everybody lists it. One change after the other: the next list has the last newcomer.
#pragma once
#include <deque>
#include <string>
#include <tuple>
#include <vector>

#include "actors/worker/service.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// Thread-safe.
class Admission {
 public:
  explicit Admission(Worker& worker) : worker_(worker) {}
  /// Changes begin: the workers of the start know each other.
  void open();
  /// The cluster ends: newcomers are refused from now on (`cancelled`), workers may still leave. Ready when
  /// nobody is being let in.
  Future<void> close();
  /// `call` is answered with the list of members. `invalid` if the number has been used.
  void join(const Ref<Invocation>& call, Member member);
  /// `call` is answered when all others count its sender as gone.
  void leave(const Ref<Invocation>& call);

 private:
  struct Change {
    Ref<Invocation> call;
    std::optional<Member> newcomer;  // else the sender leaves
  };
  void add(Change change);
  void begin();
  void admit(const Change& change);
  void dismiss(const Change& change);
  void ended();
  /// Calls the service of all listed workers but this one and `but`, and goes on when each has answered or is
  /// lost.
  template <class Told>
  void tell_all(const Service<void(Told)>& message, const Told& what, WorkerId but,
                std::function<void()> then);

  Worker& worker_;
  Mutex mutex_;
  bool open_ TROUPE_GUARDED_BY(mutex_) = false;
  bool busy_ TROUPE_GUARDED_BY(mutex_) = false;
  bool closed_ TROUPE_GUARDED_BY(mutex_) = false;
  std::vector<Promise<void>> closing_ TROUPE_GUARDED_BY(mutex_);  // wait for the change under way
  std::deque<Change> waiting_ TROUPE_GUARDED_BY(mutex_);
};

/// The other workers' part.
void follow_admissions(Worker& worker);

/// w0 to another worker: it has been told who is a member. Answered once it has the list.
inline constexpr Service<void()> kReady{"cluster.ready"};

/// What a newcomer is told: members, and those that were, of whom it may still hear.
using Roll = std::pair<std::vector<Member>, std::vector<Member>>;
Roll roll(Worker& worker);
/// Takes what roll() gave.
void take_roll(Worker& worker, Roll roll);

/// Worker to w0: it wants to be a member, and runs that build of a program. The members, once all are there;
/// to a newcomer, once all know it.
inline constexpr Service<Roll(Member newcomer, uint32_t world, std::string program)> kJoin{"cluster.join"};
using Seat = std::tuple<WorkerId, std::string, std::string>;
/// Guest to w0, in an elastic cluster: a number that nobody else is given, for a worker that is about to
/// join, the name of the job, and its TROUPE_ELASTIC.
inline constexpr Service<Seat()> kSeat{"cluster.seat"};
/// Worker to w0, in an elastic cluster: it leaves. Answered when nobody takes that for a loss.
inline constexpr Service<void()> kLeave{"cluster.leave"};

/// "w3 has left the cluster".
Error departure(Worker& worker, WorkerId id);

}  // namespace troupe::internal::actors
