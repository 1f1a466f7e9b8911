// Which task is before which, by vector clocks: two that touch the same bytes, one of them writing, without
// an edge between them are a fault whatever order the schedule gave them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sim_cuda {

/// For each stream, the number of its last task that is before this moment.
class Clock {
 public:
  uint64_t of(size_t stream) const { return stream < times_.size() ? times_[stream] : 0; }
  uint64_t advance(size_t stream) {
    if (stream >= times_.size()) times_.resize(stream + 1);
    return ++times_[stream];
  }
  void join(const Clock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
    for (size_t i = 0; i < other.times_.size(); ++i)
      if (other.times_[i] > times_[i]) times_[i] = other.times_[i];
  }

 private:
  std::vector<uint64_t> times_;
};
using Moment = std::shared_ptr<const Clock>;

/// Bytes around a pointer.
struct Extent {
  size_t before = 0, behind = SIZE_MAX;
};

/// A task that touched [begin, end) of an allocation.
struct Access {
  size_t begin, end;
  bool written;
  size_t stream;
  uint64_t time;
  std::string task;
};

/// What is known of an allocation's bytes.
class History {
 public:
  /// Throws Fault if another stream's access that is not before `now` meets this one.
  void add(const Access& access, const Clock& now, size_t bytes);
  void clear() { accesses_.clear(); }

 private:
  std::vector<Access> accesses_;
};

}  // namespace sim_cuda
