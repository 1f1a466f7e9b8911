#include "rref/joint_call.h"

#include <optional>
#include <set>

#include "actors/worker/worker.h"
#include "rref/ref_messages.h"
#include "rref/ref_table.h"

namespace troupe::internal::rref {

namespace {

constexpr uint64_t kAll = uint64_t{1} << 63;
constexpr int kCountBits = 32;

}  // namespace

uint64_t JointNumber::number() const { return (all ? kAll : 0) | series << kCountBits | count; }

JointNumber JointNumber::of(uint64_t n) {
  return {(n & kAll) != 0, (n & ~kAll) >> kCountBits, n & ((uint64_t{1} << kCountBits) - 1)};
}

struct JointCall::State {
  using Part = std::pair<WorkerId, uint64_t>;  // whose, and its number

  State(actors::Worker& w, uint64_t m) : worker(w), method(m) {}
  void tell(const Part& part, const Error& e) const {
    (void)kJointFailed.tell(worker, part.first, part.second, method, e.kind(), e.message(), e.worker());
  }
  void failed(const Error& e) {
    std::set<Part> all;
    {
      const Lock lock(mutex);
      if (why) return;
      why = e;
      all = parts;
    }
    for (const Part& part : all) tell(part, e);
  }
  actors::Worker& worker;
  const uint64_t method;
  Mutex mutex;
  std::set<Part> parts TROUPE_GUARDED_BY(mutex);
  std::optional<Error> why TROUPE_GUARDED_BY(mutex);  // of the first part that failed
};

JointCalls::JointCalls(const RefBase& one_of_them)
    : worker_(one_of_them.worker()), series_(RefTable::of(worker_)->next_joint_calls()) {}

JointCall::JointCall(JointCalls& calls, uint64_t method, bool all)
    : calls_(calls),
      method_(method),
      number_([&] {
        const Lock lock(calls.mutex_);
        return all ? JointNumber{true, calls.series_, calls.all_++}.number() : 0;
      }()),
      state_(std::make_shared<State>(calls.worker_, method)) {}

uint64_t JointCall::next(const RefBase& actor) {
  if (number_) return number_;
  const Lock lock(calls_.mutex_);
  return JointNumber{false, calls_.series_, calls_.some_[{actor.owner(), method_}]++}.number();
}

void JointCall::without(const RefBase& actor) { without_.push_back(actor.id()); }

void JointCall::tell_without(const RefBase& actor, uint64_t number) const {
  (void)kJointWithout.tell(calls_.worker_, actor.owner(), number, method_, without_);
}

void JointCall::add(const RefBase& actor, uint64_t number, const FutureBase& future) const {
  const State::Part part{actor.owner(), number};
  std::optional<Error> why;
  {
    const Lock lock(state_->mutex);
    state_->parts.insert(part);
    why = state_->why;
  }
  if (why) state_->tell(part, *why);  // another one has failed before this one was called
  future.watch_for_end([state = state_, label = object_name(actor.type(), actor.id()) + " on " +
                                                actor.owner_name()](const Error* e) {
    if (e)
      state->failed(Error(e->kind(), "[joint call] " + label + " failed: " + e->message(), {}, e->worker()));
  });
}

}  // namespace troupe::internal::rref
