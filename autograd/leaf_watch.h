// Leaves that are watched in passes, and what those who watch were told in one.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/async/future.h"
#include "core/base/mutex.h"
#include "core/graph/node.h"

namespace troupe::autograd {
class PassGradients;
}

namespace troupe::internal::autograd {

using troupe::autograd::PassGradients;

/// Hears of a set of leaves, once per pass and leaf, when nothing more can come for it.
class LeafWatch {
 public:
  virtual ~LeafWatch() = default;
  /// `total`: the gradient of leaf number `index` with what the pass has added; undefined: it added none, or
  /// the set may_wait() and asks `pass`. On a thread of the pass. What it throws fails the pass, which is
  /// over when the future is ready; empty: at once. `pass`: null in a local one, which hears of no set that
  /// may_wait().
  virtual Future<void> told(size_t index, const Tensor& total,
                            const std::shared_ptr<PassGradients>& pass) = 0;
  virtual bool may_wait() const = 0;
  /// How many leaves are in the set.
  virtual size_t count() const = 0;
};

/// Who watches which leaves of this process. Beside the nodes, of which hardly any is watched; whoever
/// registers keeps them alive. Thread-safe.
class Watched {
 public:
  using Entry = std::pair<std::shared_ptr<LeafWatch>, size_t>;  ///< the set, and the leaf's number in it
  static Watched& all();
  void add(const Node& leaf, std::shared_ptr<LeafWatch> watch, size_t index);
  void remove(const Node& leaf, const LeafWatch* watch);
  std::vector<Entry> find(const Node& leaf) const;

 private:
  mutable Mutex mutex_;
  std::unordered_map<const Node*, std::vector<Entry>> table_ TROUPE_GUARDED_BY(mutex_);
};

/// Whether a LeafWatch was registered for the leaf.
bool is_watched(const Accumulate& leaf);
/// Whether one of them may wait.
bool has_waiting_hook(const Accumulate& leaf);

/// What the sets of watched leaves were told in one pass. Thread-safe; the hooks run outside its lock.
class HookBatch {
 public:
  /// The pass has nothing more for `leaf`, whose gradient `total` gives; empty if it brought none.
  void settled(const Accumulate& leaf, const std::function<Tensor()>& total,
               const std::shared_ptr<PassGradients>& pass = {});
  /// Nothing of the pass is under way: tells of the leaves that it did not reach. Gives what hooks wait for.
  std::vector<Future<void>> finish(const std::shared_ptr<PassGradients>& pass = {});
  /// The pass has failed: so does what hooks wait for.
  void cancel();

 private:
  void keep(Future<void> end);
  Mutex mutex_;
  std::vector<Future<void>> waiting_ TROUPE_GUARDED_BY(mutex_);
  bool cancelled_ TROUPE_GUARDED_BY(mutex_) = false;
  std::map<std::shared_ptr<LeafWatch>, std::set<size_t>> told_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::autograd
