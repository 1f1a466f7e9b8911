#include "parallel/sharded/cut_bucket.h"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <utility>

#include "actors/worker/start_task.h"
#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"

namespace troupe::parallel {

Tensor flat_range(const Tensor& t, int64_t from, int64_t count) {
  return t.detach().alias({count}, {1}, t.storage_offset() + from);
}

void check_same_rank(const Group& was, const Group& now) {
  if (was.size() != now.size() || was.rank() != now.rank())
    throw_invalid(
        fmt::format("[data parallel] rank {} of {} replicas would be rank {} of {}: replicas that divide "
                    "state among them "
                    "stay as many and where they are",
                    was.rank(), was.size(), now.rank(), now.size()));
}

CutBucket::CutBucket(const Group& group, const std::vector<int64_t>& counts, TensorOptions options)
    : rank_(group.rank()),
      ranks_(group.size()),
      tensors_(counts.size()),
      options_(options),
      cuts_(counts, group.size()) {}

// Each member's elements, and behind them which gradients there are.
std::vector<int64_t> CutBucket::rows() const {
  std::vector<int64_t> all = cuts_.elements();
  for (int64_t& n : all) n += static_cast<int64_t>(tensors_);
  return all;
}

Tensor CutBucket::pack(Tensors gradients) const {
  const NoGradGuard guard;
  gradients.resize(tensors_);
  std::vector<double> has;
  for (Tensor& g : gradients) {
    has.push_back(g.defined());
    if (g.defined()) g = g.contiguous_data();
  }
  const auto counts = rows();
  const Tensor there_are = tensor(has, options_);
  const Tensor all = empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, options_);
  int64_t at = 0;
  for (size_t r = 0; r < ranks_; ++r) {
    for (const auto& part : cuts_.parts(r)) {
      const Tensor to = flat_range(all, at, part.count);
      if (const Tensor& g = gradients[part.parameter]; g.defined())
        to.copy_(flat_range(g, part.from, part.count));
      else
        to.fill_(0);
      at += part.count;
    }
    flat_range(all, at, there_are.numel()).copy_(there_are);
    at += there_are.numel();
  }
  return all;
}

Future<Tensor> CutBucket::scatter(const Group& group, Tensors gradients, CollectiveOptions options) const {
  options.rows = rows();
  return group.reduce_scatter(pack(std::move(gradients)), options);
}

namespace {

// Each member's sums go on to the next one. All take part in that, since who has lost a member would bring
// nothing, and the one behind it wait.
Task<Tensor> with_theirs(Group group, Future<Tensor> mine, CollectiveOptions options) {
  const Tensor own = co_await mine;
  const size_t rank = group.rank(), n = group.size();
  Tensors brings(n, empty({0}, own.options()));
  brings[(rank + 1) % n] = own;
  const Future<Tensors> passing = group.all_to_all(std::move(brings), options);
  const Tensors came = co_await passing;
  const NoGradGuard guard;
  co_return ops::cat({own, came[(rank + n - 1) % n]}, 0);
}

}  // namespace

Future<Tensor> CutBucket::scatter_twice(const Group& group, Tensors gradients,
                                        CollectiveOptions options) const {
  const Future<Tensor> mine = scatter(group, std::move(gradients), options);
  options.tag += "/spare";
  return internal::actors::start_task<Tensor>(with_theirs(group, mine, std::move(options)));
}

std::vector<std::pair<size_t, Tensor>> CutBucket::unpack(const Tensor& came) const {
  return unpack_as(rank_, came);
}

std::vector<std::pair<size_t, Tensor>> CutBucket::unpack_theirs(const Tensor& came) const {
  const int64_t own = elements() + static_cast<int64_t>(tensors_);
  return unpack_as(before(), flat_range(came, own, came.numel() - own));
}

std::vector<std::pair<size_t, Tensor>> CutBucket::unpack_as(size_t rank, const Tensor& came) const {
  const NoGradGuard guard;
  const auto has = flat_range(came, cuts_.elements()[rank], static_cast<int64_t>(tensors_))
                       .to(float64)
                       .to_vector<double>();
  std::vector<std::pair<size_t, Tensor>> out;
  int64_t at = 0;
  for (const auto& part : cuts_.parts(rank)) {
    if (has[part.parameter] != 0) out.emplace_back(part.parameter, flat_range(came, at, part.count));
    at += part.count;
  }
  return out;
}

Future<Tensor> CutBucket::gather(const Group& group, const Tensor& mine, CollectiveOptions options) const {
  options.rows = cuts_.elements();
  return group.all_gather(mine, options);
}

Tensor CutBucket::cut_as(size_t rank, const Tensors& wholes) const {
  const NoGradGuard guard;
  Tensor out = empty({cuts_.elements()[rank]}, options_);
  int64_t at = 0;
  for (const auto& part : cuts_.parts(rank)) {
    flat_range(out, at, part.count).copy_(flat_range(wholes[part.parameter], part.from, part.count));
    at += part.count;
  }
  return out;
}

void CutBucket::put(const Tensor& all, const Tensors& wholes) const {
  const NoGradGuard guard;
  int64_t at = 0;
  for (size_t r = 0; r < ranks_; ++r)
    for (const auto& part : cuts_.parts(r)) {
      if (r != rank_)
        flat_range(wholes[part.parameter], part.from, part.count).copy_(flat_range(all, at, part.count));
      at += part.count;
    }
}

}  // namespace troupe::parallel
