// One backward pass on one member of a group: its gradients are summed over all members while it runs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/ready_hooks.h"
#include "core/base/mutex.h"
#include "parallel/data/own_bucket.h"
#include "parallel/data/reducer_state.h"

namespace troupe::parallel {

/// The pass waits for its end, and cancels that if it fails. Thread-safe.
class PassReduction : public std::enable_shared_from_this<PassReduction> {
 public:
  /// `call`: of backward() or reduce(); 0: the pass came from elsewhere.
  PassReduction(std::shared_ptr<ReducerState> state, std::shared_ptr<autograd::PassGradients> pass,
                PassPlan plan, uint64_t call);
  Future<void> end();
  bool reduces() const { return plan_.reduces; }
  /// Before it is told of anything. All members make the buckets in the order that the first one has seen, of
  /// the parameters that need gradients there; if there is a choice.
  void ask_for_order();
  /// Nothing more can come for that parameter; the one behind the last is the anchor.
  void told(size_t index);

 private:
  void take(size_t index);
  size_t count(size_t index) TROUPE_REQUIRES(mutex_);
  void make_buckets(std::vector<std::vector<size_t>> buckets);
  std::vector<size_t> members_of(size_t b) const;
  void begin(size_t b);
  void scatter(size_t b, const std::vector<size_t>& bucket, const CollectiveOptions& options);
  void ask_for_others(const std::vector<size_t>& idle);
  void reduce_others(const std::vector<size_t>& idle, const Tensor& members_with_gradients);
  Tensors list_of(const std::vector<size_t>& bucket);
  Tensor pack(const std::vector<size_t>& bucket);
  void add(const std::vector<size_t>& bucket, const Tensors& sums);
  void add(const std::vector<size_t>& bucket, const Tensor& packed);
  template <class T>
  void wait_for(const std::vector<size_t>& bucket, const Future<T>& sums);
  void keep_own(const std::vector<size_t>& bucket);
  void begin_own(const std::vector<size_t>& bucket, const CollectiveOptions& options);
  bool note_open(const FutureBase& operation);
  template <class T, class F>
  void came(const Result<T>& result, F use);
  void end_if_done();
  void cancel();
  void stop(const Error& why);

  // What is left out of what was sent of a parameter: before the pass, and after it.
  struct Owed {
    size_t parameter;
    Tensor before, after;
  };

  const std::shared_ptr<ReducerState> state_;
  const std::shared_ptr<autograd::PassGradients> pass_;
  const PassPlan plan_;
  const uint64_t call_;
  Tensors gradients_;  // by parameter; each touched by the pass's own job, and then by its bucket's
  const Promise<void> end_;
  mutable internal::Mutex mutex_;
  std::vector<size_t> seen_ TROUPE_GUARDED_BY(mutex_);  // parameters, in the order in which they were told
  std::vector<std::vector<size_t>> buckets_ TROUPE_GUARDED_BY(mutex_);
  bool has_idle_ TROUPE_GUARDED_BY(mutex_) = false;  // the last of the buckets has those that are in no other
  std::vector<size_t> bucket_of_ TROUPE_GUARDED_BY(mutex_), counts_ TROUPE_GUARDED_BY(mutex_);
  std::vector<Owed> owed_ TROUPE_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<OwnBucket>> own_ TROUPE_GUARDED_BY(mutex_);
  std::vector<FutureBase> operations_ TROUPE_GUARDED_BY(mutex_);
  size_t told_ TROUPE_GUARDED_BY(mutex_) = 0;
  size_t begun_ TROUPE_GUARDED_BY(mutex_) = 0;  // buckets
  size_t open_ TROUPE_GUARDED_BY(mutex_) = 0;
  bool has_buckets_ TROUPE_GUARDED_BY(mutex_) = false;
  bool over_ TROUPE_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::parallel
