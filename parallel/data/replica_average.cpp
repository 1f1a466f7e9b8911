#include "parallel/data/replica_average.h"

#include <algorithm>

#include "actors/actor.h"
#include "autograd/distributed/optim/model_part.h"
#include "parallel/data/replica.h"
#include "parallel/sharded/rank_bytes.h"

namespace troupe::parallel {
namespace {

std::vector<int64_t> average_state(const std::string& key) {
  const auto average = average_of(key);
  average->remember();
  return {average->means(), average->is_due(), average->is_local()};
}

Task<void> average_replica(Actor& actor, std::string key, uint64_t number, int64_t from) {
  const auto average = average_of(key);
  count_sent_from_here();
  const std::string tag = reducer_name_of(key) + "/mean " + std::to_string(number);
  if (from == kOfAll) {
    const auto averaging = average->average_as(tag);
    co_await averaging;
  } else {
    const auto taking = average->take_from(static_cast<size_t>(from), tag);
    co_await taking;
  }
  optim::ModelPart::here()->changed(actor);
}

}  // namespace

MeanOrder next_mean(const std::vector<std::vector<int64_t>>& states, bool at_once) {
  const auto last = std::ranges::max_element(states, {}, [](const auto& s) { return s[0]; });
  const bool missed = std::ranges::any_of(states, [&](const auto& s) { return s[0] != (*last)[0]; });
  if (missed) return {true, last - states.begin()};
  return {at_once || std::ranges::any_of(states, [](const auto& s) { return s[1] != 0; }), kOfAll};
}

void install_replica_average(internal::actors::Worker& worker) {
  using internal::actors::serve;
  serve<kAverageState, average_state>(worker);
  serve<kAverage, average_replica>(worker);
}

}  // namespace troupe::parallel
