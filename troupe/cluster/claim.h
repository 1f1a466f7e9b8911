// Workers of a cluster for one program, of several that the cluster serves.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/value/value.h"
#include "troupe/cluster/cluster.h"

namespace troupe {

struct ClaimOptions {
  /// The workers are shared with others that share, and with the job's own program; else nobody else makes
  /// actors there.
  bool share = false;
};

/// Workers for this program, the job's own or a guest (attach()), until the claim ends. It gets all that it
/// asks for, or none: then the constructor throws `overloaded`, which says who has which worker, and nothing
/// has changed. A guest trains on workers that it has claimed, gradients included:
///
///   auto cluster = attach("trainer");
///   Claim claim(*cluster, 2);
///   auto a = cluster->spawn<Half>(claim.workers()[0], 784, 256);
///
/// When a claim of a guest ends that is not shared, all actors there end. When a guest is gone, however it
/// went, nothing of it is left anywhere: actors, names, contexts.
class Claim {
 public:
  /// Takes that many workers, whichever are free, but not w0.
  Claim(Cluster& cluster, size_t workers, ClaimOptions options = {});
  /// Takes these. Nobody but the job's own program has w0 for itself.
  Claim(Cluster& cluster, const std::vector<std::string>& workers, ClaimOptions options = {});
  Claim(const Claim&) = delete;
  ~Claim();

  /// Their names.
  const std::vector<std::string>& workers() const& { return names_; }
  std::vector<std::string> workers() && { return std::move(names_); }

 private:
  void take(std::vector<WorkerId> among, size_t count, bool share);
  void give_back();

  const std::shared_ptr<internal::actors::Worker> worker_;  // so that it is there when its cluster has ended
  const uint64_t number_;
  std::vector<std::string> names_;
};

}  // namespace troupe
