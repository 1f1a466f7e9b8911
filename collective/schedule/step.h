// What one rank does in a schedule: steps, of messages to others and from them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/schedule/problem.h"

namespace troupe::internal::collective {

/// A message. `slot`: the k-th to a peer, which meets the k-th that the peer expects from this rank.
struct Send {
  size_t to = 0;
  Range range;
  uint32_t slot = 0;
  bool operator==(const Send&) const = default;
};
enum class Take : uint8_t {
  put,  ///< the elements are these
  add,  ///< they are a summand: all of a step and the own ones are added in the order of ranks
};
struct Receive {
  size_t from = 0;
  Range range;
  Take take = Take::put;
  uint32_t slot = 0;
  bool operator==(const Receive&) const = default;
};
/// A step begins when the one before is over: it sends, and is over when all that it expects has come and has
/// been taken. All summands of a step are of one range, since each rank has a single place for its sum.
struct Step {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  bool operator==(const Step&) const = default;
};

/// Above: no rank has all others as peers.
inline constexpr size_t kManyRanks = 16;

}  // namespace troupe::internal::collective
