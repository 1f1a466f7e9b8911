#include "parallel/server/compression/bucket.h"

namespace troupe::parallel {

namespace {

constexpr uint64_t kAtOnce = 4;  // operations that others may wait for, behind the last one here

std::string tag_in_bucket(const std::string& tag, uint64_t number) {
  return tag + "/own " + std::to_string(number);
}

}  // namespace

void give_up_bucket(const Bucket::All& bucket, const Error& why) {
  for (uint64_t k = bucket.operations; k <= bucket.operations + kAtOnce; ++k)
    bucket.group.give_up(tag_in_bucket(bucket.options.tag, k), why);
}

CollectiveOptions Bucket::next(ReduceOp op) const {
  CollectiveOptions options = all_->options;
  options.tag = tag_in_bucket(options.tag, ++all_->operations);
  options.op = op;
  return options;
}

Future<Tensors> Bucket::all_reduce(Tensors xs, ReduceOp op) const {
  return all_->group.all_reduce(std::move(xs), next(op));
}
Future<Tensor> Bucket::all_gather(Tensor x) const { return all_->group.all_gather(std::move(x), next()); }
Future<Tensors> Bucket::all_to_all(Tensors xs) const { return all_->group.all_to_all(std::move(xs), next()); }

}  // namespace troupe::parallel
