// The operations of the ranks of one worker: who has come, which parts are here, what is to be done next, and
// how each of them ends on all ranks once it cannot go on.
//
// An operation is the n-th use of a tag by a rank in a group; other operations may begin and end in any
// order. Parts that come before the rank's own call wait for it. When one rank gives up (a lost peer, a
// deadline, a cancelled call, a peer that brings something else) it tells the ranks of its schedule, which
// tell theirs.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "actors/cell/extension.h"
#include "collective/matching/operation_id.h"
#include "collective/matching/signature.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/value/value.h"

namespace troupe::internal::collective {

/// What travels beside the elements of a message.
struct Part {
  OperationId to;
  size_t from = 0;  ///< the sender's rank
  size_t chunk = 0;
  uint32_t slot = 0;
  size_t elements = 0;
  Signature signature;
};

/// What ranks tell each other beside parts.
struct Notice {
  enum Kind : uint8_t {
    abort,  ///< it has failed: with this error
    ask,    ///< has the rank called it?
    status  ///< the answer: `called`
  } kind = abort;
  WorkerId worker = kNoWorker;  ///< that it goes to
  OperationId to;
  size_t from = 0;
  bool called = false;
  std::optional<Error> error = {};
};

/// Pure, thread-safe. Whoever calls it does what `Out` says, after the call; `out` of a call is empty.
class Operations {
 public:
  struct Taken {
    Receive receive;
    Value elements;
  };
  /// First what came is put in place or added (see order_of_sum()), then these ranges are sent; then done().
  /// Works of one operation touch different elements.
  struct Work {
    OperationId id;
    size_t chunk = 0;
    std::vector<Taken> takes = {};
    std::vector<Send> sends = {};
    bool on_devices = false;  ///< devices do all of it: done() when they have
  };
  struct Finished {
    OperationId id;
    std::optional<Error> error = {};  ///< none: its elements are there
    bool unsent = false;              ///< it has failed while it was held: nothing of it was sent
  };
  struct Out {
    std::vector<Work> work;
    std::vector<Notice> notices;
    std::vector<Finished> finished;
    std::vector<Finished> unwanted;  ///< devices need not go on with it; done() is still to come
    std::optional<Error> refused;    ///< what came is no message of an honest peer, and nothing was done
    std::set<size_t> peers;          ///< of what was entered: ranks whose loss ends it
  };
  struct Limits {
    size_t early_parts = 10'000;  ///< of one sender
    size_t failures = 256;        ///< that are remembered, of operations and of fail_tags()
    size_t forgotten = 1024;      ///< groups; likewise
    size_t single_uses = 1024;    ///< that are over, or given up by others, and remembered
    size_t window = 3;            ///< chunks on their way at once
  };
  Operations() : Operations(Limits()) {}
  explicit Operations(Limits limits) : limits_(limits) {}

  /// Ranks that have not called an operation that is held.
  using Missing = std::function<std::vector<size_t>()>;

  /// `rank` calls an operation of a group, with members in the order of ranks. `finished` may be in `out`
  /// already. `fails`: it cannot take part, and the others hear why. `held`: nothing of it is sent until it
  /// is released, since it may be done without messages.
  OperationId enter(uint64_t group, std::vector<GroupMember> members, size_t rank, const OperationTag& tag,
                    Signature signature, Out& out, const std::optional<Error>& fails = {}, Missing held = {});
  /// One that was held goes by messages.
  void release(const OperationId& id, Out& out);
  /// One that was held is done without. False: it has ended before.
  bool done_without(const OperationId& id, Out& out);
  /// So is the next use of the tag, which was called and is over at once. Its number.
  uint64_t done_at_once(uint64_t group, size_t rank, const std::string& tag);
  /// The call of the rank was refused, before anybody has heard of it. It counts as one of the tag, so that
  /// the next is the next of all, and fails on all members.
  void refuse(uint64_t group, const std::vector<GroupMember>& members, size_t rank, const OperationTag& tag,
              Collective what, const Error& why, Out& out);
  /// That of a chunk is done.
  void done(const OperationId& id, size_t chunk, Out& out);
  void part(WorkerId sender, const Part& part, Value elements, Out& out);
  void notice(WorkerId sender, const Notice& notice, Out& out);
  /// Nothing more comes from a worker.
  void lost(WorkerId worker, const Error& why, Out& out);
  /// Its time ("5 s") is over: asks all who has called it, and ends it when all have answered...
  void overdue(const OperationId& id, const std::string& limit, Out& out);
  /// ...or have had their time: this one has not.
  void unanswered(const OperationId& id, size_t rank, Out& out);
  /// It cannot go on.
  void fail(const OperationId& id, const Error& why, Out& out);
  void cancel(const OperationId& id, Out& out);
  /// Those of the group whose tags begin so, now and later, until they are among many that failed so.
  void fail_tags(uint64_t group, const std::string& begin, const Error& why, Out& out);
  /// An operation of a single use has failed on this rank, whether that has called it or not. All members
  /// hear why, those included that call it later. Nothing if it is over here.
  void give_up(const OperationId& id, const std::vector<GroupMember>& members, const Error& why, Out& out);
  /// The group is used no more by this worker: what goes on is cancelled, and all that is known of it
  /// forgotten. What others still send for it is answered so, until it is among many that were forgotten, or
  /// entered again.
  void forget(uint64_t group, Out& out);
  /// The rank calls nothing any more, since its actor has ended: its uses of tags are forgotten. What it has
  /// called goes on.
  void leave(uint64_t group, size_t rank) {
    const Lock lock(mutex_);
    tags_.erase({group, rank});
    std::erase_if(given_up_, [&](const auto& x) { return x.first.group == group && x.first.rank == rank; });
  }

  /// Operations that go on here, and from whom parts are missing.
  std::vector<std::string> waits() const;
  std::vector<actors::JointWait> joint_waits() const;

  /// Operations that go on here, that others have called or given up, and groups that have lost a member.
  struct Counts {
    size_t running = 0, early = 0, given_up = 0, tags = 0, broken = 0;
    bool operator==(const Counts&) const = default;
  };
  Counts counts() const {
    const Lock lock(mutex_);
    Counts c{running_.size(), early_.size(), given_up_.size(), 0, broken_.size()};
    for (const auto& [rank, tags] : tags_) c.tags += tags.size();
    return c;
  }

 private:
  struct Came {
    size_t elements;
    Value value;
  };
  struct Chunk {
    Schedule steps;
    size_t at = 0;
    bool has_begun = false, busy = false;
    std::map<std::pair<size_t, uint32_t>, Came> came;  // by sender and slot
  };
  struct Running {
    std::vector<GroupMember> members;
    Signature signature;
    std::set<size_t> peers;
    Schedule first;  // of chunk 0, until that is open
    size_t chunks = 0, next = 0, over = 0, busy = 0;
    Missing held;                  // set: nothing is sent
    bool unsent = false;           // it has failed so
    bool was_held = false;         // a rank may be over that others wait for: all hear when it fails
    bool on_devices = false;       // it is their turn
    std::map<size_t, Chunk> open;  // that have begun, or of which parts have come
    std::optional<Error> error;    // it ends when nothing is busy
    struct Question {
      std::string limit;
      std::map<size_t, bool> called;
      std::set<size_t> open, silent;
    };
    std::optional<Question> question;
  };
  struct Early {
    WorkerId sender;
    Part part;
    Value elements;
  };
  using Table = std::map<OperationId, Running>;
  // How often a rank has used a tag.
  struct Uses {
    uint64_t next = 0;
    uint64_t without = 0;  // bit i: use next - 1 - i was done without messages
    void add(uint64_t use, bool done_without);
    bool done_without(uint64_t use) const;
  };

  // All with mutex_.
  OperationId use(uint64_t group, size_t rank, const OperationTag& tag, Collective what);
  std::vector<Early> take_early(const OperationId& id);
  static bool is_sender(const Running& op, WorkerId sender, const Part& part);
  void end_different(Table::iterator at, const Part& part, const std::set<size_t>& senders, Out& out);
  void arrived(Table::iterator at, WorkerId sender, const Part& part, Value elements, Out& out);
  Chunk& chunk_of(const OperationId& id, Running& op, size_t chunk);
  static void begin_steps(Chunk& chunk, Work& work);
  void advance(Table::iterator at, Out& out);
  void go_on(const OperationId& id, Running& op, size_t number, Out& out);
  void end(Table::iterator at, Error why, Out& out, const std::set<size_t>& also = {},
           size_t except = SIZE_MAX);
  void forget_locked(uint64_t group, Out& out) TROUPE_REQUIRES(mutex_);
  void give_up_early(const OperationId& id, const Error& why, Out& out, WorkerId except = kNoWorker);
  void finish(Table::iterator at, Out& out);
  void note_failure(const OperationId& id, const Error& why);
  void remember(const OperationId& single_use);
  void answered(Table::iterator at, Out& out);
  static std::set<size_t> missing(const Running& op);
  void abort_to(WorkerId worker, size_t rank, const OperationId& id, const Error& why, Out& out) const;
  const Uses* uses(const OperationId& id) const;
  bool has_called(const OperationId& id) const;
  std::optional<Error> why_not(const OperationId& id) const;
  Error why_over(const OperationId& id, const Part& part) const;

  const Limits limits_;
  mutable Mutex mutex_;
  Table running_;
  std::map<OperationId, std::vector<Early>> early_;
  std::map<WorkerId, size_t> early_of_;    // parts, by sender
  std::map<OperationId, Error> given_up_;  // by others, before the call
  std::map<std::pair<uint64_t, size_t>, std::map<std::string, Uses>> tags_;
  std::map<uint64_t, Error> broken_;
  std::map<WorkerId, Error> lost_;
  std::deque<std::pair<OperationId, Error>> failures_;  // the newest
  struct FailedTags {
    uint64_t group;
    std::string begin;
    Error why;
  };
  std::deque<FailedTags> failed_tags_;  // likewise
  std::unordered_set<uint64_t> forgotten_;
  std::deque<uint64_t> forgotten_since_;  // those and others, the newest
  // Of single uses, the newest that are over or given up. (No part of one that is over and well comes later.)
  std::set<OperationId> single_uses_;
  std::deque<OperationId> in_order_;
};

}  // namespace troupe::internal::collective
