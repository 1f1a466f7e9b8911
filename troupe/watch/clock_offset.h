// How far the clock of another host is from this one's, from questions and answers.
#pragma once
#include <cstdint>
#include <limits>

namespace troupe {

/// Of the worker's clock, in ns: its time minus `offset` is that of the worker that profiled, give or take
/// `error`.
struct ClockOffset {
  int64_t worker = 0;
  int64_t offset = 0, error = 0;
};

/// The other end looked at its clock somewhere between a question and its answer: in the middle of the
/// shortest such time, give or take half of it.
class ClockSamples {
 public:
  void add(int64_t asked, int64_t theirs, int64_t answered) {
    if (answered - asked >= shortest_) return;
    shortest_ = answered - asked;
    offset_ = theirs - (asked + shortest_ / 2);
  }
  bool any() const { return shortest_ != std::numeric_limits<int64_t>::max(); }
  ClockOffset of(int64_t worker) const { return {worker, offset_, (shortest_ + 1) / 2}; }

 private:
  int64_t shortest_ = std::numeric_limits<int64_t>::max(), offset_ = 0;
};

}  // namespace troupe
