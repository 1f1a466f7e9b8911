// Is anything under way in the cluster? A pure state machine, on the worker that wants to know.
//
// It asks all workers, in waves, what they do and how many calls they have sent and got. A call on its way is
// in no worker's hands, and a worker may be idle when it is asked and busy a moment later: one wave proves
// nothing. But if every worker is idle in a wave, and has sent no more calls than had arrived by the wave
// before, then none was on its way between the waves and nobody has done anything since (the counts of
// Mattern 1987, compared for every pair of workers, so that lost ones can be left out: nothing that a lost
// worker sent arrives any more where the loss was known by the wave before).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/calls/traffic_report.h"

namespace troupe::internal::actors {

/// Not synchronized.
class Quiescence {
 public:
  /// `lost`: workers that took part and are gone already.
  explicit Quiescence(std::set<WorkerId> workers, std::set<WorkerId> lost = {})
      : workers_(std::move(workers)), lost_(std::move(lost)) {}

  /// Begins a wave: every living worker is to be asked, after the reports of the wave before are there.
  void start_wave();
  void report(TrafficReport report);
  /// No answer will come. The others have to hear of it too: until they have, there is no rest.
  void lost(WorkerId worker);

  /// Those that this wave waits for.
  std::vector<WorkerId> missing() const;
  /// Everybody has reported, and nothing is under way.
  bool at_rest() const;
  /// What is, by the reports so far: "w1 handles 2 messages, waits for Layer::forward; 3 calls from w0 to
  /// w1".
  std::string under_way() const;

 private:
  using Reports = std::map<WorkerId, TrafficReport>;
  /// Calls from a to b that had been sent by this wave and had not arrived by `then`, while b took calls
  /// from a.
  uint64_t on_the_way(WorkerId a, WorkerId b, const Reports& then) const;
  std::set<WorkerId> workers_, lost_;
  Reports before_, now_;
  bool two_waves_ = false;
};

}  // namespace troupe::internal::actors
