#include "parallel/sharded/cut_parameters.h"

#include <fmt/format.h>

#include <ranges>

#include "actors/worker/start_task.h"

namespace troupe::parallel {

CutParameters::CutParameters(const Group& group, const Tensors& parameters,
                             std::vector<std::vector<size_t>> buckets, Shard shard, std::string name,
                             std::optional<Duration> timeout, bool spares)
    : group_(group), buckets_(std::move(buckets)), shard_(shard), name_(std::move(name)), timeout_(timeout) {
  pieces_.resize(parameters.size());
  for (const size_t i : std::views::join(buckets_)) {
    const Tensor& p = parameters[i];
    if (!p.is_contiguous())
      throw_invalid(
          fmt::format("[GradientReducer] parameter {} ({}) is not contiguous, and {} cuts it: make it "
                      "of contiguous elements, or write Shard::none",
                      i, p.summary(), parallel::word(shard)));
    pieces_[i] = {p, {}, {.whole = p.shape(), .run = {{0, 0}}}};
  }
  if (spares && group.size() > 1) spares_ = pieces_;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    std::vector<int64_t> counts;
    for (const size_t i : buckets_[b]) counts.push_back(parameters[i].numel());
    cuts_.emplace_back(group, counts, parameters[buckets_[b][0]].options());
    find_pieces(b, cuts_.back().mine(), pieces_);
    if (!spares_.empty()) find_pieces(b, cuts_.back().theirs(), spares_);
  }
}

void CutParameters::find_pieces(size_t b, const std::vector<BucketCuts::Part>& parts,
                                std::vector<Piece>& pieces) const {
  for (const auto& part : parts) {
    Piece& p = pieces[buckets_[b][part.parameter]];
    p.place.run = {part.from, part.count};
    p.piece = flat_range(p.whole, part.from, part.count);
    p.piece.requires_grad_();
  }
}

void CutParameters::regroup(const Group& group, std::string name) {
  check_same_rank(group_, group);
  group_ = group, name_ = std::move(name);
  gathers_ = 0;
  const internal::Lock lock(mutex_);
  gathered_ = Future<void>::ready({});
}

Tensors CutParameters::wholes(size_t b) const {
  Tensors all;
  for (const size_t i : buckets_[b]) all.push_back(pieces_[i].whole);
  return all;
}

Future<Tensor> CutParameters::scatter(size_t b, Tensors gradients, const CollectiveOptions& options) const {
  return spares_.empty() ? cuts_[b].scatter(group_, std::move(gradients), options)
                         : cuts_[b].scatter_twice(group_, std::move(gradients), options);
}

std::vector<std::pair<Tensor, Tensor>> CutParameters::unpack(size_t b, const Tensor& came) const {
  std::vector<std::pair<Tensor, Tensor>> out;
  for (auto& [k, gradient] : cuts_[b].unpack(came))
    out.emplace_back(pieces_[buckets_[b][k]].piece, std::move(gradient));
  if (!spares_.empty())
    for (auto& [k, gradient] : cuts_[b].unpack_theirs(came))
      out.emplace_back(spares_[buckets_[b][k]].piece, std::move(gradient));
  return out;
}

std::string CutParameters::next_tag() { return fmt::format("{}/gather {}", name_, ++gathers_); }

Future<void> CutParameters::gathered() const {
  const internal::Lock lock(mutex_);
  return gathered_;
}

Future<void> CutParameters::gather() {
  if (group_.size() == 1) return Future<void>::ready({});
  Future<void> end = internal::actors::start_task<void>(run(shared_from_this(), next_tag()));
  const internal::Lock lock(mutex_);
  gathered_ = end;
  return end;
}

void CutParameters::give_up(const Error& why) {
  if (group_.size() == 1) return;
  const std::string tag = next_tag();
  const size_t rank = group_.rank();
  const Error told(ErrorKind::failed, fmt::format("[GradientReducer] the step has failed on rank {} ({}): {}",
                                                  rank, group_.label(rank), why.message()));
  for (size_t b = 0; b < buckets_.size(); ++b) group_.give_up(fmt::format("{}/{}", tag, b), told);
  const internal::Lock lock(mutex_);
  gathered_ = Future<void>::failed(told);
}

Future<Tensor> CutParameters::begin(size_t b, const std::string& tag) const {
  const CollectiveOptions options{
      .tag = fmt::format("{}/{}", tag, b), .single_use = true, .timeout = timeout_, .gradients = false};
  return cuts_[b].gather(group_, cuts_[b].cut(wholes(b)), options);
}

// Two buckets at a time, so that there is no second copy of the parameters.
Task<void> CutParameters::run(std::shared_ptr<CutParameters> self, std::string tag) {
  const size_t n = self->buckets_.size();
  size_t begun = 0;
  Future<Tensor> next;
  try {
    for (size_t b = 0; b < n; ++b) {
      const Future<Tensor> now = b ? next : self->begin(begun++, tag);
      if (begun < n) next = self->begin(begun++, tag);
      const Tensor all = co_await now;
      self->cuts_[b].put(all, self->wholes(b));
    }
  } catch (...) {
    if (next.valid()) next.cancel();
    for (; begun < n; ++begun) self->begin(begun, tag).cancel();
    throw;
  }
}

}  // namespace troupe::parallel
