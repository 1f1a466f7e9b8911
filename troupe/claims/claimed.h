// What a worker knows of the programs that have claimed it, and what it refuses to others.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/cell/interceptor.h"
#include "actors/worker/worker.h"
#include "core/base/mutex.h"
#include "rref/ref_table.h"
#include "troupe/claims/claim_table.h"

namespace troupe::internal {

/// Thread-safe.
class Claimed final : public actors::Interceptor {
 public:
  /// Part of every worker's set-up, behind references.
  static void install(actors::Worker& worker, const std::shared_ptr<rref::RefTable>& references);
  /// What this worker's program has claimed under that number; nothing: it has given it back.
  void note_own(uint64_t number, std::set<WorkerId> workers) TROUPE_EXCLUDES(mutex_);
  /// Whether this worker's program has claimed that worker.
  bool has(WorkerId worker) const TROUPE_EXCLUDES(mutex_);
  /// Refuses actors of programs that have not claimed a worker which another one has for itself.
  void incoming_call(actors::Invocation& call) override;

 private:
  struct Holding {
    std::string who;
    bool share = false;
  };
  Claimed(actors::Worker& worker, rref::RefTable& references) : worker_(worker), references_(references) {}
  std::string look(WorkerId holder, bool share) const TROUPE_EXCLUDES(mutex_);
  std::string conflict(WorkerId holder, bool share) const TROUPE_REQUIRES(mutex_);
  std::string hold(const ClaimId& claim, Holding holding) TROUPE_EXCLUDES(mutex_);
  void free(const ClaimId& claim, bool gone) TROUPE_EXCLUDES(mutex_);

  actors::Worker& worker_;
  rref::RefTable& references_;
  mutable Mutex mutex_;
  std::map<ClaimId, Holding> holdings_ TROUPE_GUARDED_BY(mutex_);
  std::map<uint64_t, std::set<WorkerId>> own_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal
