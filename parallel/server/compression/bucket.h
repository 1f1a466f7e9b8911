// The gradients of one bucket on one member of a group, as functions of programs reduce them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/cell/task.h"
#include "collective/group.h"

namespace troupe::parallel {

/// What a function of a program's own gets, on each member, whenever a bucket is full. A handle: copies are
/// of the same bucket. In the mailbox of the member.
class Bucket {
 public:
  /// This member's, nobody else's to write to. Each is its part of the mean over all rows, so that the sums
  /// over the members are the gradients of the whole batch. Zeros where it has none.
  const Tensors& gradients() const& { return all_->gradients; }
  Tensors gradients() && = delete;  // write `Bucket bucket` as the parameter, and use that
  size_t members() const { return all_->group.size(); }
  size_t rank() const { return all_->group.rank(); }
  /// The number of a gradient's parameter, the same on all members and in every pass.
  size_t parameter(size_t gradient) const { return all_->parameters.at(gradient); }
  /// What this member keeps of a gradient from pass to pass, by a name; undefined until it is set. Set
  /// another tensor, and do not write to the one that is there: a pass that fails leaves it as it was. It is
  /// state of the actor: in checkpoints, and in a replica that takes the place of another. Where a pass has
  /// come to its end on some members only, all find it undefined again.
  Tensor& kept(size_t gradient, const std::string& name) const { return all_->kept.at(gradient)[name]; }

  /// Operations of the group, which all members call in the same order.
  Future<Tensors> all_reduce(Tensors xs, ReduceOp op = ReduceOp::sum) const;
  Future<Tensor> all_gather(Tensor x) const;
  Future<Tensors> all_to_all(Tensors xs) const;

  // ---- not for users: who makes one
  struct All {
    Group group;
    CollectiveOptions options = {};
    std::vector<size_t> parameters = {};
    Tensors gradients = {};
    std::vector<std::map<std::string, Tensor>> kept = {};  // by gradient
    uint64_t operations = 0;                               // begun so far
  };
  explicit Bucket(std::shared_ptr<All> all) : all_(std::move(all)) {}

 private:
  CollectiveOptions next(ReduceOp op = ReduceOp::sum) const;
  std::shared_ptr<All> all_;
};

/// Gives what all members take of the gradients of a bucket, in their order, shapes and dtypes: the same bits
/// on all. A coroutine; what it throws fails the pass on all members. What a lambda captures is there as
/// long as the reducer.
using BucketReduction = std::function<Task<Tensors>(Bucket bucket)>;

/// The operations of a bucket that this member has begun last, or would begin next, fail on all members with
/// this error: its function has thrown.
void give_up_bucket(const Bucket::All& bucket, const Error& why);

}  // namespace troupe::parallel
