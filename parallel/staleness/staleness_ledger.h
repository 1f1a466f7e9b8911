// How late gradients were: one ledger for all that update values with gradients of values before.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace troupe::parallel {

/// How late the gradients of one parameter, or of a pipeline, were, and what was lost.
struct StalenessLedger {
  std::map<int64_t, int64_t> delays;  ///< gradients used, by updates between the values that they were
                                      ///< computed on and the update that used them
  std::map<int64_t, double> weights;  ///< of these, by the same: rows, say
  int64_t late = 0;                   ///< gradients dropped: their step had closed without them
  int64_t aborted = 0;                ///< steps begun again because a trainer was lost
  int64_t lost = 0;                   ///< trainers

  /// A gradient is used.
  void note(int64_t delay, double weight) { ++delays[delay], weights[delay] += weight; }
  /// "gradients by delay 0: 20 of weight 640, 1: 3 of weight 96; late 0, aborted 0, lost 0".
  std::string str() const;
};

/// The rate of an update whose gradients have that delay: rate / (1 + delay) (Zhang and others 2016).
inline double rate_by_delay(double rate, double delay) { return rate / (1 + delay); }

}  // namespace troupe::parallel
