// What makes any actor one of several replicas: messages that it handles besides its own.
#pragma once
#include <string>

#include "actors/actor.h"
#include "actors/worker/common_method.h"
#include "collective/group.h"
#include "core/graph/stateful.h"
#include "parallel/data/gradient_reducer.h"
#include "parallel/data/parameter_average.h"
#include "parallel/sharded/rank_bytes.h"

namespace troupe::parallel {

struct JoinOrder {
  std::string key;   ///< of this set of replicas, in later messages to this one
  std::string name;  ///< of their reducers
  Group group;       ///< of all of them
  uint64_t first_bucket = BucketSizes().first, other_buckets = BucketSizes().others;
  Compression compression = {};  ///< of gradients, between them
  std::string aggregation = "mean";
  int64_t shard = 0;               ///< a Shard
  int64_t gather = 0, reduce = 0;  ///< of parts: Per
  Averaging average = {};          ///< of parameters, in the place of sums
  bool buffers = true;             ///< those of the first are sent before each forward pass
  bool spares = false;             ///< each updates the pieces of the one before it as well
  bool again = false;  ///< they leave the set that they are of, and have the same values, or get them later
};

/// Driver to replicas: they are copies of one model from now on, with the values of the first. How many
/// buffers each takes then.
inline constexpr internal::actors::CommonMethod<int64_t(JoinOrder order)> kJoin{"replica.join"};
/// Driver to replicas: a forward pass begins. What a backward pass comes to each of them by, whether it has
/// rows or not.
inline constexpr internal::actors::CommonMethod<Tensor(std::string key)> kAnchor{"replica.anchor"};
/// Driver to replicas: all take the buffers of the first, and their parameters are whole. `number`: of the
/// message. `record`: for a pass that is recorded, of a step.
inline constexpr internal::actors::CommonMethod<void(std::string key, uint64_t number, bool record)> kBuffers{
    "replica.buffers"};
/// Driver to replicas: whether passes of this context leave their gradients unreduced.
inline constexpr internal::actors::CommonMethod<void(std::string key, bool on)> kAccumulate{
    "replica.accumulate"};
/// Driver to replicas: state_dict(). `number`: of the message. The state is the first one's to give.
inline constexpr internal::actors::CommonMethod<StateDict(std::string key, uint64_t number)> kState{
    "replica.state"};
/// Driver to replicas, or to any actor, with an empty key: what it has, and sent, when the last step is over.
inline constexpr internal::actors::CommonMethod<RankBytes(std::string key)> kBytes{"replica.bytes"};
/// Driver to replicas: load_state_dict().
inline constexpr internal::actors::CommonMethod<void(std::string key, StateDict state)> kLoadState{
    "replica.load_state"};
/// Driver to replicas: there is nobody any more who keeps them equal.
inline constexpr internal::actors::CommonMethod<void(std::string key)> kLeave{"replica.leave"};

/// Part of every worker's set-up.
void install_replicas(internal::actors::Worker& worker);

/// In the mailbox of an actor: whether it is one of several replicas.
bool is_replica();
/// In a method of an actor that has joined a group under this key. Null: it has not.
const internal::parallel::ReplicaReducer* reducer_of(const std::string& key);
/// What averages its parameters, by the word of the driver. `invalid` if it has left, or nothing does.
std::shared_ptr<ParameterAverage> average_of(const std::string& key);
/// Its reducer's name, which begins tags.
std::string reducer_name_of(const std::string& key);
/// What gradients of its parts count for, in the sum over all replicas, from the next use of one on.
void set_share(const std::string& key, double share);

}  // namespace troupe::parallel
