// Calls that one caller makes of several actors, which may meet in them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/value/value.h"
#include "rref/ref_base.h"

namespace troupe::internal::rref {

class JointCalls;

/// A call of several actors. They know by its number that their parts belong together, whatever else each of
/// them is called for; and if one part fails, the workers of the others hear why (kJointFailed).
class JointCall {
 public:
  /// The part of that actor: what call(number) gives, a future. The number is for CallSettings::joint and
  /// CallOptions::joint.
  template <class F>
  auto part(const RefBase& actor, F call) {
    const uint64_t number = next(actor);
    if (!without_.empty()) tell_without(actor, number);
    auto future = call(number);
    add(actor, number, future);
    return future;
  }

  /// The actor has no part in it: who would meet it there is told so. Before the first part.
  void without(const RefBase& actor);

 private:
  friend class JointCalls;
  struct State;
  JointCall(JointCalls& calls, uint64_t method, bool all);
  uint64_t next(const RefBase& actor);
  void add(const RefBase& actor, uint64_t number, const FutureBase& part) const;
  void tell_without(const RefBase& actor, uint64_t number) const;

  JointCalls& calls_;
  const uint64_t method_, number_;  // of all; else 0
  std::shared_ptr<State> state_;
  std::vector<ObjectId> without_;
};

/// Makes joint calls of some actors, and lives as long as these are made. Thread-safe.
class JointCalls {
 public:
  explicit JointCalls(const RefBase& one_of_them);
  /// Of all of them. `method`: its number.
  JointCall all(uint64_t method) { return {*this, method, true}; }
  /// Of some, such as a stage of a pipeline: the n-th such call of a method that a worker gets belongs to
  /// the n-th that the others get.
  JointCall some(uint64_t method) { return {*this, method, false}; }

 private:
  friend class JointCall;
  actors::Worker& worker_;
  const uint64_t series_;
  Mutex mutex_;
  uint64_t all_ TROUPE_GUARDED_BY(mutex_) = 0;
  // The key is a worker and a method: a worker knows calls by their numbers, and may have several of the
  // actors.
  std::map<std::pair<WorkerId, uint64_t>, uint64_t> some_ TROUPE_GUARDED_BY(mutex_);
};

/// What the number of a joint call says.
struct JointNumber {
  bool all = false;     ///< else it counts the calls of one method that the actor got
  uint64_t series = 0;  ///< of the caller's JointCalls
  uint64_t count = 0;   ///< of the call in it

  static JointNumber of(uint64_t number);
  uint64_t number() const;
};

}  // namespace troupe::internal::rref
