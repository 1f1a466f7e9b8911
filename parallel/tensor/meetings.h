// Where conversions of several ranks meet: under which name of a group, and by which tag.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/cell/extension.h"
#include "collective/group.h"
#include "core/async/future.h"
#include "core/base/mutex.h"
#include "parallel/tensor/meeting.h"

namespace troupe::internal::actors {
class Invocation;
}

namespace troupe::tp {

/// A joint call as its callees know it.
struct JointId {
  WorkerId from = kNoWorker;
  uint64_t number = 0, method = 0;  ///< method 0: one of all
  auto operator<=>(const JointId&) const = default;
};

/// The meetings of conversions in one context on one worker, or of all without a context. Thread-safe.
///
/// All ranks agree on them, though each runs the calls that are under way in an order of its own. A joint
/// call (rref/joint_call.h) has the number that its caller gave it, and when it has failed on one rank, what
/// others wait for in it ends. Other calls that use a group are counted in the order in which they come to
/// their first conversion over it, which is that of their beginning; one that comes later than one that began
/// after it is refused, since other ranks may have seen another order. The conversions of a call are counted
/// in its own order.
///
/// Tags that are used once would be remembered for ever: so each context, and each block of calls without
/// one, has a group of its own, with the same members, that is forgotten with it.
class Meetings {
 public:
  /// `where`: what the names of the groups end with. `in_blocks`: it lives as long as the worker.
  Meetings(internal::actors::Worker& worker, std::string where, bool in_blocks)
      : worker_(worker), where_(std::move(where)), in_blocks_(in_blocks) {}
  ~Meetings();
  Meetings(const Meetings&) = delete;

  /// Of the next conversion, called `what`, of the call that this thread handles; `layer` (may be empty) is
  /// for errors. Outside of actors each counts as a call. `invalid` in what an actor does besides calls, of
  /// which ranks know no order.
  Meeting next(const Group& group, const char* what, std::string_view layer) TROUPE_EXCLUDES(mutex_) {
    return next(group, what, layer, false);
  }
  /// Conversions of this layer alone are counted: some ranks may begin this one before another one that the
  /// call comes to first.
  Meeting next_of_layer(const Group& group, const char* what, std::string_view layer)
      TROUPE_EXCLUDES(mutex_) {
    return next(group, what, layer, true);
  }
  /// Of what belongs to no call, in a context. No other one has that tag.
  Meeting at(const Group& group, const std::string& tag) TROUPE_EXCLUDES(mutex_);
  /// In a context: the call that this thread handles has that number in all groups, so that their ranks may
  /// come to it in orders of their own. No other call of the context has it.
  void number_call(uint64_t number) TROUPE_EXCLUDES(mutex_);
  /// A joint call has failed elsewhere.
  void fail(const JointId& call, const Error& why) TROUPE_EXCLUDES(mutex_);
  /// The worker stops: there is nothing to forget any more.
  void stop() TROUPE_EXCLUDES(mutex_);

 private:
  static constexpr uint64_t kBlock = 256;  // calls
  static constexpr size_t kMostSeries = 64;
  struct CallKey {
    WorkerId from = 0;
    uint64_t id = 0, store_as = 0;
    TimePoint began = TimePoint::min();
    auto operator<=>(const CallKey&) const = default;
  };
  static CallKey key_of(const internal::actors::Invocation& call);
  struct Call {
    uint64_t number = 0;
    std::string kind = {};  // behind the number
    std::optional<JointId> joint = {};
    uint64_t conversions = 0;
    std::map<std::string, uint64_t, std::less<>> of_layers = {};
    std::shared_ptr<std::vector<Future<void>>> checks = nullptr;
    std::string text() const { return "call " + std::to_string(number) + kind; }  // that tags begin with
  };
  // Calls whose numbers follow each other: those that are counted, or those of a caller's JointCalls.
  struct Series {
    WorkerId from = kNoWorker;
    uint64_t number = 0, method = 0;
    auto operator<=>(const Series&) const = default;
  };
  struct OfSeries {
    std::deque<std::pair<uint64_t, Group>> named;  // by block, the newest last
    uint64_t used = 0;                             // when
  };
  struct OfGroup {
    Group group;      // as it was given
    size_t rank = 0;  // of an actor here
    std::map<Series, OfSeries> series = {};
    uint64_t calls = 0, uses = 0;
    std::map<CallKey, Call> open = {};
    CallKey newest = {};
  };
  Meeting next(const Group& group, const char* what, std::string_view layer, bool of_layer)
      TROUPE_EXCLUDES(mutex_);
  Series series_of(const Call& call) const;
  OfGroup& of(const Group& group) TROUPE_REQUIRES(mutex_);
  Call& call_of(OfGroup& of, const internal::actors::Invocation& call) TROUPE_REQUIRES(mutex_);
  bool is_used(const Group& named) const TROUPE_REQUIRES(mutex_);
  OfSeries& used(OfGroup& of, const Series& number, std::vector<Group>& gone) TROUPE_REQUIRES(mutex_);
  const Group& named(OfGroup& of, const Call& call, std::vector<Group>& gone) TROUPE_REQUIRES(mutex_);

  internal::actors::Worker& worker_;
  const std::string where_;
  const bool in_blocks_;
  internal::Mutex mutex_;
  std::vector<std::unique_ptr<OfGroup>> groups_ TROUPE_GUARDED_BY(mutex_);
  std::map<CallKey, uint64_t> numbered_ TROUPE_GUARDED_BY(mutex_);  // by number_call()
};

/// What is known of the latest joint calls.
template <class T>
class OfJointCalls {
 public:
  /// False: something is known of that one.
  bool add(const JointId& call, T what) {
    if (!all_.emplace(call, std::move(what)).second) return false;
    since_.push_back(call);
    if (since_.size() > kMost) {
      all_.erase(since_.front());
      since_.pop_front();
    }
    return true;
  }
  const T* find(const JointId& call) const {
    const auto at = all_.find(call);
    return at == all_.end() ? nullptr : &at->second;
  }

 private:
  static constexpr size_t kMost = 1024;
  std::map<JointId, T> all_;
  std::deque<JointId> since_;  // the newest last
};

/// Those of a worker. Thread-safe.
class MeetingsOfWorker final : public internal::actors::Extension {
 public:
  /// Part of every worker's set-up.
  static void install(internal::actors::Worker& worker);
  explicit MeetingsOfWorker(internal::actors::Worker& worker)
      : worker_(worker), without_context_(worker, "", true) {}

  /// Those in the context of the call that this thread handles, or without one. `invalid` where no worker
  /// runs.
  static std::shared_ptr<Meetings> here(const char* what);

  void stop() override { without_context_.stop(); }
  /// A joint call has failed elsewhere: so it fails here.
  void fail(const JointId& call, const Error& why) TROUPE_EXCLUDES(mutex_);
  /// These actors have no part in a joint call.
  void without(const JointId& call, std::vector<ObjectId> others) TROUPE_EXCLUDES(mutex_);
  /// Throws why the call has failed, if that is known; `invalid` if one of the group has no part in it.
  /// `what` is to be done there.
  void check(const JointId& call, const Group& group, const char* what) TROUPE_EXCLUDES(mutex_);
  /// What formulas say that conversions here have sent to other ranks, forward and back.
  int64_t converted_bytes() const { return *sends_; }
  const std::shared_ptr<std::atomic<int64_t>>& sends() const { return sends_; }

 private:
  std::shared_ptr<Meetings> new_in_context(uint64_t context) TROUPE_EXCLUDES(mutex_);

  internal::actors::Worker& worker_;
  const std::shared_ptr<std::atomic<int64_t>> sends_ = std::make_shared<std::atomic<int64_t>>(0);
  Meetings without_context_;
  internal::Mutex mutex_;
  std::vector<std::weak_ptr<Meetings>> in_contexts_ TROUPE_GUARDED_BY(mutex_);
  OfJointCalls<Error> failed_ TROUPE_GUARDED_BY(mutex_);
  OfJointCalls<std::vector<ObjectId>> without_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::tp
