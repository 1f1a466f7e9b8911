// A driver's function that begins again, in the same processes, once a worker was lost.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "core/base/seed_stream.h"
#include "troupe/cluster/cluster.h"

namespace troupe::internal {

/// What nothing better has mended: an elastic job that has lost a worker goes back to its newest checkpoint
/// as a job does whose processes were started again, but for the processes. References never move to another
/// actor; so the function has to come to its end by the loss, everything that it made has to go with it, and
/// it makes it again on the workers that are there. Of the driver's thread.
class Anew {
 public:
  explicit Anew(Cluster& cluster);
  /// Calls `driver` until it has come to its end. Throws what it throws, but losses of workers where the job
  /// is elastic, has a folder of checkpoints, and comes further between two of them.
  void run(const std::function<void(Cluster&)>& driver);

  /// Beginnings in a row, without a checkpoint between them, that are too many.
  static constexpr int64_t kMost = 10;

 private:
  bool possible(const Error& why) const;
  void begin(const Error& why);
  /// "w2 is lost"; empty: nobody.
  std::string gone() const;
  bool seat_newcomers();

  Cluster& cluster_;
  const Generator::Position random_;  // of the program
  std::set<std::string> workers_;     // when it began last
  int64_t commits_ = 0, in_vain_ = 0;
};

}  // namespace troupe::internal
