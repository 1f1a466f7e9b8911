// A link that outlives its connections: what one end knows of it, and what it does when a connection breaks.
//
// Frames of a link are numbered in each direction. A sender keeps what the other end has not acknowledged
// (Window), and a receiver takes each number once. When a connection breaks, both ends dial; whoever dials
// and whoever is reached say what they have received, and the rest is sent again (Comeback). The link is
// lost where nothing was heard for the silence bound, where the process of the other end is gone (nobody
// listens at its address any more, or whoever does knows nothing of the link), and where one end says
// goodbye.
//
// Pure: no sockets, no clock.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/base/clock.h"

namespace troupe::internal::net {

/// Names one link; from the random generator of who opened it. Zeros: a connection that is not made again.
using LinkId = std::array<std::byte, 16>;

/// Both ends of a handshake say this of the link; its proofs cover it (net/protocol/handshake.h).
struct LinkWords {
  enum class Word : uint32_t {
    fresh = 0,    ///< a new link
    again = 1,    ///< of a dial: a link that has broken; of its answer: it goes on
    unknown = 2,  ///< of an answer: there is no such link here
    later = 3,    ///< of an answer: the link comes back by another dial, or has no use for a lane
    lane = 4      ///< of a dial: one more socket for the connection that the link has; of its answer: it is
  };
  LinkId id{};
  Word word = Word::fresh;
  uint32_t attempt = 0;   ///< which of this link's dials; of a lane: the one that the connection is from
  uint32_t received = 0;  ///< number of the next frame that whoever says this expects; of a lane: its own
  uint32_t direct = 0;    ///< of an answer: 1 if nothing on the way changes addresses; of a lane: how many
  uint64_t path = 0;      ///< of a dial: a hash of the two addresses of the connection, as it sees them
  bool outlives() const { return id != LinkId{}; }
  bool operator==(const LinkWords&) const = default;
};

inline constexpr size_t kLinkWordsBytes = 40;
std::array<std::byte, kLinkWordsBytes> encode_link_words(const LinkWords& words);
/// A word that there is none of becomes `unknown`.
LinkWords decode_link_words(const std::byte* bytes);

/// Counts by how much `a` is ahead of `b`, where numbers begin again after the last.
inline int32_t ahead(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b); }

/// Frames that were sent and not acknowledged, and those that wait. `Frame` has `bool numbered`: those that
/// have are numbered from 0, in order.
template <class Frame>
class Window {
 public:
  void push(Frame frame) {
    next_ += frame.numbered;
    waiting_.push_back(std::move(frame));
  }
  /// One without a number, which goes before those that wait for acknowledgements; `begun`: but not before
  /// the first of all.
  void push_ahead(Frame frame, bool begun) { waiting_.insert(waiting_.begin() + begun, std::move(frame)); }
  std::deque<Frame>& waiting() { return waiting_; }
  const std::deque<Frame>& waiting() const { return waiting_; }
  /// Written, and not acknowledged.
  const std::deque<Frame>& unacknowledged() const { return sent_; }
  /// The first that waits has been written. `keeps`: until it is acknowledged, if it has a number.
  void written(bool keeps) {
    if (keeps && waiting_.front().numbered)
      sent_.push_back(std::move(waiting_.front()));
    else
      acknowledged_ += waiting_.front().numbered;
    waiting_.pop_front();
  }
  /// The other end has all before `received`; moves them to `over`. False: it has what was never sent.
  bool acknowledge(uint32_t received, std::vector<Frame>& over) {
    if (ahead(received, next_) > 0) return false;
    while (ahead(received, acknowledged_) > 0 && !sent_.empty()) take(sent_, over);
    return true;
  }
  /// The link has another connection, whose other end expects `received`: frames that are left wait, in
  /// order. One without a number was for the old connection and goes to `over`, too. False as above.
  bool again(uint32_t received, std::vector<Frame>& over) {
    if (!acknowledge(received, over)) return false;
    std::deque<Frame> all = std::move(sent_);
    sent_.clear();
    for (Frame& f : waiting_)
      if (f.numbered)
        all.push_back(std::move(f));
      else
        over.push_back(std::move(f));
    waiting_ = std::move(all);
    while (ahead(received, acknowledged_) > 0) take(waiting_, over);
    return true;
  }
  void clear() { sent_.clear(), waiting_.clear(); }

 private:
  void take(std::deque<Frame>& from, std::vector<Frame>& over) {
    over.push_back(std::move(from.front()));
    from.pop_front();
    ++acknowledged_;
  }

  std::deque<Frame> sent_, waiting_;
  uint32_t next_ = 0, acknowledged_ = 0;
};

/// One end of a link finds the other one again by this. Whoever owns it dials, tells how that went, and asks
/// next() after each event and at the time that it names.
class Comeback {
 public:
  /// `opened`: this end opened the link; its dials go first where both dial. `silence`: the bound.
  Comeback(bool opened, const LinkId& id, Duration silence) : opened_(opened), id_(id), silence_(silence) {}

  enum class Do { wait, dial, give_up };
  struct Next {
    Do what;
    TimePoint again;  ///< of `wait`: ask then, at the latest
  };
  /// `heard`: when something came last, but no earlier than this side began to look.
  Next next(TimePoint now, TimePoint heard) const;
  bool is_up() const { return up_; }
  /// The dial that the connection is from.
  uint32_t current() const { return current_; }

  /// The connection has broken.
  void broke() { up_ = false, next_dial_ = {}, pause_ = kFirstPause; }
  /// This end dials now; what it says.
  LinkWords dial(TimePoint now, uint32_t received);
  /// How a dial ended. `refused`: nobody listens there; `stranger`: whoever does is of another job.
  enum class Failure { failed, refused, stranger };
  /// False: the link is lost.
  bool failed(uint32_t attempt, TimePoint now, Failure failure);
  /// Its answer. `again`: the link has the new connection from now on; `unknown`: it is lost; `later`: not by
  /// this one.
  LinkWords::Word answered(uint32_t attempt, TimePoint now, const LinkWords& answer);
  /// The other end dials; what it is told. `again`: the link has that connection from now on, and a dial of
  /// this end is given up.
  LinkWords asked(TimePoint now, const LinkWords& dial, uint32_t received);
  /// Whether this one still goes on.
  bool dials(uint32_t attempt) const { return dialling_ && attempt == attempt_; }

  /// A dial that has not been answered by then is given up.
  Duration patience() const { return silence_ / 10; }
  /// A connection from which nothing came for so long is not waited for any more: a way that is there again
  /// after some seconds is found sooner by a new connection than by what TCP repeats on an old one.
  Duration suspicion() const { return silence_ * 2 / 5; }
  /// Whether nothing between both ends changes addresses: then nobody at the other one's address means that
  /// its process has ended.
  void set_direct(bool direct) { direct_ = direct; }
  bool direct() const { return direct_; }

 private:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(10),
                            kLastPause = std::chrono::milliseconds(160);
  void pause(TimePoint now);
  void is_back(uint32_t attempt);

  const bool opened_;
  const LinkId id_;
  const Duration silence_;
  bool up_ = true, dialling_ = false, direct_ = false;
  uint32_t attempt_ = 0;  // of the newest dial that this end knows of, of either
  uint32_t current_ = 0;  // of the connection that the link has
  TimePoint dialled_{}, next_dial_{};
  Duration pause_ = kFirstPause;
};

}  // namespace troupe::internal::net
