// Worker w0, asked for workers by the programs that the cluster serves.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/cell/extension.h"
#include "actors/worker/worker.h"
#include "core/base/mutex.h"
#include "troupe/claims/claim_table.h"

namespace troupe::internal {

/// Thread-safe.
class ClaimDesk final : public actors::Extension {
 public:
  /// Part of the set-up of w0.
  static void install(actors::Worker& worker);
  /// Guests get no worker of which that is true: spares of the job's own program. Before any claim.
  void reserve(std::function<bool(WorkerId)> is_spare) { is_spare_ = std::move(is_spare); }
  /// The cluster ends, and with it all that guests have claimed.
  void close();
  void worker_lost(WorkerId id, const Error& why) override;
  void stop() override;

 private:
  explicit ClaimDesk(actors::Worker& worker)
      : worker_(worker), table_([&worker](WorkerId id) { return worker.members().name_of(id); }) {}
  void want(const Ref<actors::Invocation>& call, uint64_t number, ClaimRequest request);
  template <class F>
  void change(F f) TROUPE_EXCLUDES(mutex_);
  void send_all() TROUPE_EXCLUDES(mutex_);
  void send(const ClaimTable::Message& message) TROUPE_EXCLUDES(mutex_);
  void answer(const ClaimTable::Answer& answer) TROUPE_EXCLUDES(mutex_);

  actors::Worker& worker_;
  std::function<bool(WorkerId)> is_spare_ = [](WorkerId) { return false; };
  Mutex mutex_;
  ClaimTable table_ TROUPE_GUARDED_BY(mutex_);
  std::map<ClaimId, Ref<actors::Invocation>> asked_ TROUPE_GUARDED_BY(mutex_);
  std::deque<ClaimTable::Out> out_ TROUPE_GUARDED_BY(mutex_);  // leaves in this order
  bool sending_ TROUPE_GUARDED_BY(mutex_) = false;
  bool closed_ TROUPE_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::internal
