// What is summed of parts, and the largest of the ranks' elements.
#include "parallel/tensor/convert.h"
#include "parallel/tensor/meetings.h"

namespace troupe::tp {

Future<Tensor> largest(const Tensor& x, const Group& group, std::string_view layer) {
  if (!x.defined()) throw_invalid("[largest] the tensor is undefined");
  if (group.size() <= 1) return Future<Tensor>::ready(x.detach());
  const Meeting at = MeetingsOfWorker::here("largest")->next(group, "largest", layer);
  const CollectiveOptions options{.op = ReduceOp::max, .tag = at.tag};
  at.count_sum(static_cast<int64_t>(x.nbytes()));
  return at.group.all_reduce(x.detach(), options);
}

Future<Tensor> sum(const Part& part) { return sum(part.summand, part.group, part.layer); }

Future<Tensor> sum_scatter(const Part& part, int64_t dim, const std::vector<int64_t>& sizes) {
  return sum_scatter(part.summand, part.group, dim, sizes);
}

}  // namespace troupe::tp
