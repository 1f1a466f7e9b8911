// What the parts of joint calls gave in a context: a pass that comes by some of them, and not by the others,
// would wait for ever where steps of theirs wait for each other.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/distributed/context_state.h"
#include "core/base/mutex.h"
#include "core/graph/node.h"

namespace troupe::autograd {

/// Kept with the context, on the worker that made the calls. Thread-safe.
class JointResults {
 public:
  /// A part of call `number` of `method` gave what this node stands for; behind it are steps that wait for
  /// others `among` those (WaitingRule::among()).
  void add(uint64_t number, const std::string& method, const std::vector<uint64_t>& among,
           const ReceiveNode& node, const std::string& part) TROUPE_EXCLUDES(mutex_);
  /// `invalid` if what begins at `roots` comes by some parts of a call, and nothing that has left this worker
  /// by the others.
  void check(const std::vector<Edge>& roots, const ContextState& state) const TROUPE_EXCLUDES(mutex_);

 private:
  struct Part {
    WorkerId peer;
    uint64_t pair;
    std::string name;  // "Model::run of w1"
  };
  mutable internal::Mutex mutex_;
  using Key = std::tuple<uint64_t, std::string, uint64_t>;  // call, method, among whom
  std::map<Key, std::vector<Part>> calls_ TROUPE_GUARDED_BY(mutex_);
};

/// Among whom steps wait in the part of the graph that begins there; each number once.
std::vector<uint64_t> waits_behind(std::span<const Edge> edges);

}  // namespace troupe::autograd
