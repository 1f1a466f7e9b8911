#include "parallel/data/reducer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/add_gradient.h"
#include "autograd/distributed/optim/model_part.h"
#include "autograd/leaf_watch.h"
#include "ops/ops.h"
#include "parallel/data/parameter_average.h"
#include "parallel/data/pass_reduction.h"

namespace troupe::parallel {
namespace {

using internal::Lock;
using internal::Mutex;

// From the last parameter to the first, as a backward pass comes by them.
std::vector<size_t> first_order(size_t parameters) {
  std::vector<size_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), size_t{0});
  return order;
}

bool is_member(const Group& group, const std::string& worker) {
  for (size_t r = 0; r < group.size(); ++r)
    if (group.label(r) == worker || group.label(r).ends_with(" on " + worker)) return true;
  return false;
}

// A member that fails since another one has failed tells of that one.
constexpr const char* kFailedOn = "the pass has failed on rank ";

}  // namespace

Tensor scaled(const Tensor& t, double factor) { return factor == 1 ? t : ops::mul(t, factor); }

ReducerState::ReducerState(Group of, const Tensors& all, const ReducerOptions& options, ReplicaPieces pieces)
    : group(std::move(of)),
      use_(name_in_group(group, options.name, kOfReducer)),
      timeout(options.timeout),
      sizes(options.buckets),
      compression(options.compression),
      residuals(compression.keeps_residual() ? std::make_unique<Residuals>() : nullptr),
      own(OwnReduction::of(options)),
      parts(std::move(pieces.parts)),
      average(std::move(pieces.average)) {
  if (use_.name().empty())
    throw_invalid(
        fmt::format("{}rank {} of this group has a reducer \"{}\" already: give this one another "
                    "name (ReducerOptions::name), on all members",
                    kOfReducer, group.rank(), options.name));
  for (const Tensor& p : all)
    if (p.requires_grad() || (p.is_leaf() && is_floating(p.dtype()))) parameters.push_back(p);
  if (residuals) residuals->set_parameters(parameters);
  if (own) own->set_parameters(parameters.size());
  order_ = first_order(parameters.size());
  if (options.shard != Shard::none) cut_for(options, pieces);
  buckets_ = scatters() ? cut->buckets() : buckets_of(parameters, order_, sizes);
  size_t bytes = 0;
  for (const Tensor& p : parameters) bytes += p.nbytes();
  asks_for_order_ = !scatters() && (buckets_.size() > 1 || bytes > BucketSizes().first);
  for (const auto& part : parts) {
    buckets_.emplace_back();
    for (const Tensor& proxy : part->proxies()) {
      buckets_.back().push_back(parameters.size());
      parameters.push_back(proxy);
    }
  }
  for (Tensors& some : unreduced_) some.resize(parameters.size());
}

// Those that are frozen now stay whole.
void ReducerState::cut_for(const ReducerOptions& options, const ReplicaPieces& before) {
  if (options.shard == Shard::all)
    throw_invalid(std::string(kOfReducer) +
                  "a reducer does not gather parameters: write Shard::gradients, or make a DataParallel");
  if (options.shard == Shard::gradients && options.compression.on())
    throw_invalid(fmt::format("{}compressed gradients are summed whole: write Shard::state, or leave out {}",
                              kOfReducer, options.compression.str()));
  if (before.cut) {
    cut = before.cut;
    cut->regroup(group, name());
    return;
  }
  std::vector<size_t> unfrozen = order();
  std::erase_if(unfrozen, [&](size_t i) { return !parameters[i].requires_grad(); });
  cut = std::make_shared<CutParameters>(group, parameters, buckets_of(parameters, unfrozen, sizes),
                                        options.shard, name(), timeout, before.spares);
  if (auto* const part = optim::ModelPart::here()) part->add(cut);
}

int64_t ReducerState::summed_bytes() const {
  double sum = 0;
  const Compression how = is_local() ? Compression() : compression;  // parameters travel whole
  for (const Tensor& p : parameters)
    if (p.requires_grad()) sum += travelling_bytes(how, p.shape(), p.dtype(), group.size());
  return static_cast<int64_t>(sum);
}

bool ReducerState::is_local() const { return average && average->is_local(); }

Future<Tensor> ReducerState::scatter(size_t b, Tensors gradients, const CollectiveOptions& options) const {
  const size_t own = own_buckets();
  return b < own ? cut->scatter(b, std::move(gradients), options)
                 : parts[b - own]->scatter(std::move(gradients), options);
}

std::vector<std::pair<Tensor, Tensor>> ReducerState::unpack(size_t b, const Tensor& came) const {
  const size_t own = own_buckets();
  if (b < own) return cut->unpack(b, came);
  const PartPieces& part = *parts[b - own];
  Tensors gradients = part.unpack(came);
  const Tensors leaves = part.leaves();
  std::vector<std::pair<Tensor, Tensor>> out;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined()) out.emplace_back(leaves[i], std::move(gradients[i]));
  return out;
}

Tensor ReducerState::unreduced(size_t i, bool by_rows, bool make) {
  const Lock lock(mutex_);
  Tensor& leaf = unreduced_[by_rows][i];
  if (!leaf.defined() && make) {
    const Tensor& p = parameters[i];
    leaf = leaf_without_elements(p.shape(), p.options());
  }
  return leaf;
}

Future<void> ReducerState::told(size_t index, const std::shared_ptr<autograd::PassGradients>& pass) {
  const uint64_t number = pass->number();
  uint64_t call = 0;
  bool by_all = true;
  if (index == parameters.size()) {
    const Tensor said = pass->take(anchor);
    by_all = said.defined();
    if (by_all) call = static_cast<uint64_t>(said.item());
  }
  if (const TakesGradient takes = takes_in(pass->context())) {
    if (index < parameters.size()) takes(parameters[index], pass->take(parameters[index]));
    return {};
  }
  std::shared_ptr<PassReduction> reduction;
  bool is_new;
  {
    const Lock lock(mutex_);
    if (failed_.contains(number)) return {};
    auto& at = reductions_[number];
    is_new = !at;
    const auto known = calls_.find(call);
    if (known != calls_.end() && !is_new)
      throw_error(ErrorKind::failed, std::string(kOfReducer) + "a pass came by a parameter before it began");
    if (is_new && known != calls_.end()) {
      at = std::make_shared<PassReduction>(shared_from_this(), pass, known->second, call);
    } else if (is_new) {
      PassPlan plan{.local = is_local(), .tag = fmt::format("{}/pass {}", name(), number)};
      if (const auto now = accumulating_.find(pass->context()); now != accumulating_.end())
        plan.reduces = false, plan.by_rows = now->second.rows.has_value(),
        plan.own = now->second.rows.value_or(1);
      at = std::make_shared<PassReduction>(shared_from_this(), pass, std::move(plan), 0);
    }
    reduction = at;
  }
  Future<void> end;
  if (is_new) {
    end = reduction->end();
    reduction->ask_for_order();
  }
  if (!by_all && reduction->reduces() && group.size() > 1) refuse_pass_of_one();
  reduction->told(index);
  return end;
}

TakesGradient ReducerState::takes_in(uint64_t context) const {
  const Lock lock(mutex_);
  const auto now = accumulating_.find(context);
  return now == accumulating_.end() ? TakesGradient() : now->second.takes;
}

PassPlan ReducerState::plan_of_step(uint64_t step, double share) const {
  check_even(share, 1);
  return {
      .reduces = !accumulates(frame().context), .own = share, .tag = fmt::format("{}/step {}", name(), step)};
}

void ReducerState::check_even(double rows, double all) const {
  const auto n = static_cast<double>(group.size());
  if (own && own->needs_even_rows && std::abs(rows * n - all) > 1e-9 * all)
    throw_invalid(
        fmt::format("{}{} counts members alike, and this one has {} of {} rows: give each of the {} as many",
                    kOfReducer, own->name, rows, all, group.size()));
}

bool ReducerState::is_watched_by_others() const {
  return std::ranges::any_of(parameters, [](const Tensor& p) {
    return p.requires_grad() && internal::autograd::Watched::all().find(*p.gradient_edge().node).size() > 1;
  });
}

void ReducerState::fail_pass(const std::shared_ptr<autograd::PassGradients>& pass) {
  {
    const Lock lock(mutex_);
    std::erase_if(failed_, [](const auto& f) { return f.second.expired(); });
    failed_.emplace(pass->number(), pass);
  }
  forget_pass(pass->number());
}

void ReducerState::refuse_pass_of_one() const {
  throw_invalid(fmt::format(
      "{}a backward pass has come by the parameters of {}, and not by way of all members, which sum their "
      "gradients: "
      "it began at a call of that one alone; expected a result of net.mean() or net(x), and rank by rank "
      "reducer.backward()",
      kOfReducer, group.label(group.rank())));
}

std::optional<Error> ReducerState::told_of(const Error& why) const {
  if (why.kind() == ErrorKind::disconnected && is_member(group, why.worker())) return {};
  const size_t rank = group.rank();
  return Error(ErrorKind::failed, why.message().find(kFailedOn) != std::string::npos
                                      ? why.message()
                                      : fmt::format("{}{}{} ({}): {}", kOfReducer, kFailedOn, rank,
                                                    group.label(rank), why.message()));
}

void ReducerState::give_up(const PassPlan& plan, const Error& why) const {
  const auto known = told_of(why);
  if (!known) return;
  const Error& told = *known;
  group.give_up(plan.tag + "/rows", told);
  if (!plan.reduces) return;
  group.give_up(plan.tag + "/order", told);
  const size_t most = most_buckets(parameters, sizes);
  for (size_t b = 0, n = scatters() ? buckets().size() : most; b < n; ++b)
    group.give_up(fmt::format("{}/{}", plan.tag, b), told);
  group.give_up(plan.tag + kIdle, told);
  for (size_t b = 0; b < most; ++b) group.give_up(fmt::format("{}{} {}", plan.tag, kIdle, b), told);
}

}  // namespace troupe::parallel
