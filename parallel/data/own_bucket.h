// One bucket of gradients of one pass, which a function of a program's own reduces.
#pragma once
#include <memory>
#include <vector>

#include "actors/cell/task.h"
#include "core/base/mutex.h"
#include "parallel/data/own_reduction.h"

namespace troupe::parallel {

class ReducerState;

/// `bucket`: its gradients are defined, `has` says which of them this member has.
class OwnBucket {
 public:
  OwnBucket(std::shared_ptr<const ReducerState> state, std::shared_ptr<Bucket::All> bucket,
            std::vector<double> has)
      : state_(std::move(state)), bucket_(std::move(bucket)), has_(std::move(has)), before_(bucket_->kept) {}
  /// Gives the reduced gradients, undefined where no member has one. If it fails, or is ended before, it does
  /// so on all members. Records nothing: who begins it has grad mode off.
  static Task<Tensors> run(std::shared_ptr<OwnBucket> self);
  /// The pass has failed here, and run() is ended.
  void fail(const Error& why);
  const std::vector<size_t>& parameters() const& { return bucket_->parameters; }
  std::vector<size_t> parameters() && = delete;  // keep the bucket
  /// What is kept of the k-th gradient: before the pass, and after it.
  KeptTensors before(size_t k) const;
  KeptTensors after(size_t k) const { return bucket_->kept.at(k); }

 private:
  class Running;
  const OwnReduction& by() const&;
  Tensor counts() const;
  void let_go_of_unequal(const std::vector<double>& sums);
  void check_made(const Tensors& made) const;
  const std::shared_ptr<const ReducerState> state_;
  const std::shared_ptr<Bucket::All> bucket_;
  const std::vector<double> has_;
  mutable internal::Mutex mutex_;
  std::vector<KeptTensors> before_ TROUPE_GUARDED_BY(mutex_);
  Error why_ TROUPE_GUARDED_BY(mutex_){ErrorKind::cancelled, "its pass was cancelled"};
};

}  // namespace troupe::parallel
