// What a guest of the cluster may call. It is none of the members: it has connected, it is answered, and
// nobody waits for it.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "actors/cell/extension.h"
#include "actors/membership/members.h"
#include "actors/worker/actor_table.h"
#include "core/base/mutex.h"
#include "net/protocol/standing.h"
#include "net/transport.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

inline bool is_guest(WorkerId id) { return net::standing_of(id) == net::Standing::guest; }

/// The name of its worker. Paths of what it makes (ActorCell::path()) begin with it.
std::string guest_name(WorkerId id);

/// Services by name: those that read. All others are refused, and so are methods of actors: a new message is
/// for members alone until it stands here. tests/messages.py has it in the table of messages.
inline constexpr std::array<std::string_view, 10> kOpenToGuests = {
    "cluster.seat", "metrics",     "profile.begin", "profile.clock", "profile.end",
    "ref.names",    "ref.objects", "worker.calls",  "worker.report", "worker.types"};

/// Besides, in a job that was started for it: what it takes to call actors, whose methods are open then, to
/// make some, and to claim workers and train there.
inline constexpr std::array<std::string_view, 28> kOpenToControl = {
    "call.argument",     "call.hand_over", "call.status",    "claim.give_back", "claim.meet",
    "claim.want",        "grad.backward",  "grad.broken",    "grad.drop",       "grad.finish",
    "grad.joined",       "grad.reach",     "grad.release",   "grad.report",     "grad.waits",
    "grad.want",         "ref.drop_name",  "ref.expect",     "ref.give_back",   "ref.joint_failed",
    "ref.joint_without", "ref.lookup",     "ref.not_called", "ref.refer",       "ref.register",
    "ref.set_name",      "ref.spawn",      "ref.unpin"};

/// The guests of one worker. Thread-safe.
class Guests final : public Extension {
 public:
  using Lose = std::function<void(WorkerId, const Error&)>;
  Guests(Members& members, const ActorTable& actors, Lose lose)
      : members_(members), actors_(actors), lose_(std::move(lose)) {}
  /// Guests may call actors from now on. The log has their calls, unless they have claimed this worker: of
  /// those that are the same the first, the 10th, the 100th and so on.
  void allow_control() { control_ = true; }
  bool control() const { return control_; }
  /// One has connected: what it holds here is let go when it has gone.
  void came(const net::PeerInfo& guest);
  /// What a guest must not send, as "may not call " goes on; empty: it may. `service`: the name of the one
  /// that a call is for, if there is one.
  std::optional<std::string> refused(const net::PeerInfo& guest, const net::Packet& packet,
                                     const std::string& service);
  /// The guest has claimed this worker: its calls may be in contexts of its own.
  void admit(WorkerId guest);
  /// It has claimed it no longer.
  void revoke(WorkerId guest);
  /// The cluster ends: whatever they hold must not keep it.
  void dismiss(const std::string& why);
  void worker_lost(WorkerId id, const Error& why) override;

 private:
  std::string method_of(const net::Call& call) const;
  void note(const net::PeerInfo& guest, const std::string& what) TROUPE_EXCLUDES(mutex_);
  Members& members_;
  const ActorTable& actors_;
  const Lose lose_;
  std::atomic<bool> control_{false};
  std::atomic<int64_t> calls_{0};
  mutable Mutex mutex_;
  std::set<WorkerId> there_ TROUPE_GUARDED_BY(mutex_), admitted_ TROUPE_GUARDED_BY(mutex_);
  // How often each has made which call.
  std::map<WorkerId, std::map<std::string, int64_t>> noted_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
