// The contexts of one originator that have ended, as another worker knows them. Contexts are numbered from 1.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>

namespace troupe::autograd {

/// A set of numbers in as many intervals as there are gaps: hardly more than contexts are alive at a time.
/// Not synchronized.
class EndedContexts {
 public:
  void add(uint64_t number) { add(number, number + 1); }
  /// All below `number`.
  void add_below(uint64_t number) { add(0, number); }
  bool contains(uint64_t number) const;
  size_t intervals() const { return runs_.size(); }

 private:
  void add(uint64_t first, uint64_t end);
  std::map<uint64_t, uint64_t> runs_;  // first, one past the last
};

}  // namespace troupe::autograd
