// Replicas that learn by themselves: when their driver has them take the mean.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "actors/worker/common_method.h"

namespace troupe::parallel {

/// Driver to replicas, before a forward pass: how many means one has taken, whether the next is due, and
/// whether it learns by itself now.
inline constexpr internal::actors::CommonMethod<std::vector<int64_t>(std::string key)> kAverageState{
    "replica.average_state"};
/// Driver to replicas: they take their mean; or what the replica of that rank has, which was with the last
/// one when others were not. `number`: of the message.
inline constexpr internal::actors::CommonMethod<void(std::string key, uint64_t number, int64_t from)>
    kAverage{"replica.average"};

constexpr int64_t kOfAll = -1;  // in the place of a rank

struct MeanOrder {
  bool needed = false;
  int64_t from = kOfAll;
};
/// What follows from what replicas answer to kAverageState, in the order of their ranks. `at_once`: whether
/// one is due or not.
MeanOrder next_mean(const std::vector<std::vector<int64_t>>& states, bool at_once);

/// Part of every worker's set-up.
void install_replica_average(internal::actors::Worker& worker);

}  // namespace troupe::parallel
