// Who decides what of the small operations of one tag that go by memory: the words that ranks of one host
// show each other, and the rules for them. (How operations follow them: lane.h.)
//
// Each rank has words that it alone writes and all read. Its operations of the tag are numbered from 0:
//
//   state[slot]  of operation k in slot k mod kLaneSlots: 2 (k + 1) once the rank's elements are there;
//                one more if it has failed at the rank since
//   what[slot]   what the operation is, as a hash
//   called       the rank has called the operations below; one that is in no slot goes by messages
//   done         the operations below are decided at the rank: it reads nothing of them any more
//   asleep       the rank sleeps until the operations below are decided, and has to be told
//
// An operation goes by memory if all ranks have it in a slot and bring the same, else by messages: no rank
// takes back what it said, so all decide alike. One that has failed somewhere goes by messages on those that
// have not decided: these hear why.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace troupe::internal::collective {

inline constexpr uint64_t kLaneSlots = 4;

/// What a rank relies on. (Tests leave one out and see it fail.)
enum class LaneRule : uint8_t {
  room,              ///< a slot is written again only when all ranks have decided what was there
  called_first,      ///< `called` is read before the slot: what is in no slot after that never will be
  look_again,        ///< who has said that it sleeps looks again
  tell_of_decision,  ///< who decides an operation tells those that sleep
  tell_of_message,   ///< who says that it goes by messages tells them, too
  done_last,         ///< `done` is written when nothing is read any more
  called_at_first,   ///< operations before the lane count as called
  failed_shows       ///< who calls what has failed elsewhere does not find it complete
};
inline constexpr size_t kLaneRules = 8;

enum class LaneWay : uint8_t { open, memory, messages };

/// One rank's side. Not synchronized: but for find(), which any thread may call as long as the operation is
/// open. `Words` gives each access to a word: state(rank, slot), what(rank, slot), called(rank), done(rank)
/// and asleep(rank); set_state(slot, x), set_what(slot, x), set_called(x), set_done(x) and set_asleep(x) of
/// the own ones; rank() and ranks(); keeps(rule).
template <class Words>
class LaneWords {
 public:
  struct Decided {
    uint64_t use;
    LaneWay way;
  };

  /// `first`: the next use of the tag by this rank.
  LaneWords(Words words, uint64_t first) : words_(words), next_(first), done_(first), known_(words.ranks()) {
    if (!words_.keeps(LaneRule::called_at_first)) return;
    words_.set_called(first);
    words_.set_done(first);
  }
  uint64_t next() const { return next_; }
  /// The operations below are decided here.
  uint64_t done() const { return done_; }

  /// Whether the next operation has a slot.
  bool has_room() {
    if (next_ < kLaneSlots || !words_.keeps(LaneRule::room)) return true;
    const uint64_t least = next_ - kLaneSlots + 1;
    if (done_ < least) return false;
    for (size_t r = 0; r < words_.ranks(); ++r) {
      if (r == words_.rank() || known_[r] >= least) continue;
      known_[r] = words_.done(r);
      if (known_[r] < least) return false;
    }
    return true;
  }
  /// The next operation goes by memory, if all say so: write(slot) puts the elements there. advance()
  /// follows.
  template <class Write>
  uint64_t by_memory(uint64_t what, Write write) {
    const uint64_t use = next_++, slot = use % kLaneSlots;
    words_.set_what(slot, what);
    write(slot);
    words_.set_state(slot, 2 * (use + 1));
    open_.push_back({use, what, false});
    return use;
  }
  /// It goes by messages, whatever the others say. advance() follows; tell(rank) as there.
  template <class Tell>
  uint64_t by_messages(Tell tell) {
    const uint64_t use = next_++;
    words_.set_called(use + 1);
    open_.push_back({use, 0, true});
    if (words_.keeps(LaneRule::tell_of_message)) wake(use, tell);
    return use;
  }
  /// It has failed here, before or after it was decided. (The others hear that by a message, and look again.)
  void failed(uint64_t use) {
    const uint64_t slot = use % kLaneSlots, own = 2 * (use + 1);
    if (words_.state(words_.rank(), slot) == own) words_.set_state(slot, own + 1);
    for (Open& op : open_)
      if (op.use == use) op.over = true;
  }
  /// Decides what can be decided, in order: `decided` gets it. take(use) has the elements of all ranks before
  /// it. `tell`, of who has just called: tell(rank) that it sleeps, and waits for what was decided. (Whoever
  /// was told tells nobody: who told it has told all.)
  template <class Take, class Tell>
  void advance(std::vector<Decided>& decided, Take take, Tell tell, bool tells = true) {
    uint64_t complete = 0;
    while (!open_.empty()) {
      const Open& op = open_.front();
      const uint64_t use = op.use;
      if (!op.over) {
        const LaneWay way = find(use, op.what);
        if (way == LaneWay::open) break;
        if (!words_.keeps(LaneRule::done_last)) words_.set_done(use + 1);
        if (way == LaneWay::memory) take(use);
        complete = use + 1;
        decided.push_back({use, way});
      }
      open_.pop_front();
      done_ = use + 1;
      words_.set_done(done_);
    }
    if (open_.empty() && sleeps_) words_.set_asleep(sleeps_ = 0);
    if (complete && tells && words_.keeps(LaneRule::tell_of_decision)) wake(complete - 1, tell);
  }
  /// Whoever decides the operation, or makes it go by messages, tells this rank. advance() follows.
  template <class Take>
  void sleep(uint64_t use, std::vector<Decided>& decided, Take take) {
    if (sleeps_ < use + 1) words_.set_asleep(sleeps_ = use + 1);
    if (words_.keeps(LaneRule::look_again)) advance(decided, take, [](size_t) {}, false);
  }
  /// What the others say of an operation that this rank has in a slot.
  LaneWay find(uint64_t use, uint64_t what) const {
    const uint64_t slot = use % kLaneSlots, there = 2 * (use + 1);
    bool all = true;
    for (size_t r = 0; r < words_.ranks(); ++r) {
      if (r == words_.rank()) continue;
      const bool first = words_.keeps(LaneRule::called_first);
      bool called = first && words_.called(r) > use;
      const uint64_t state = words_.state(r, slot);
      if (!first) called = words_.called(r) > use;
      if (state == there) {
        if (words_.what(r, slot) != what) return LaneWay::messages;
      } else if (state == there + 1) {
        if (words_.keeps(LaneRule::failed_shows)) return LaneWay::messages;
      } else if (called) {
        return LaneWay::messages;
      } else {
        all = false;
      }
    }
    return all ? LaneWay::memory : LaneWay::open;
  }

 private:
  struct Open {
    uint64_t use, what;
    bool over;  // needs no decision: it goes by messages, or has failed
  };
  template <class Tell>
  void wake(uint64_t use, Tell tell) const {
    for (size_t r = 0; r < words_.ranks(); ++r)
      if (r != words_.rank() && words_.asleep(r) > use) tell(r);
  }

  Words words_;
  uint64_t next_, done_, sleeps_ = 0;
  std::vector<uint64_t> known_;  // done, of each rank, at least
  std::deque<Open> open_;        // called, not decided
};

/// Ranks that have not said anything of an operation that is in a slot here. From any thread.
template <class Words>
std::vector<size_t> missing_in(const Words& words, uint64_t use) {
  std::vector<size_t> all;
  for (size_t r = 0; r < words.ranks(); ++r)
    if (r != words.rank() && words.called(r) <= use && words.state(r, use % kLaneSlots) / 2 != use + 1)
      all.push_back(r);
  return all;
}

}  // namespace troupe::internal::collective
