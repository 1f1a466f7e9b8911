#include "parallel/data/parameter_average.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/graph/copy_on_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"

namespace troupe::parallel {
namespace {

constexpr const char* kOfAverage = "[average] ";
constexpr const char* kProgress = "progress";  // int64: steps, steps since the last mean, means
constexpr const char* kOuterAnchor = "anchor.";
constexpr const char* kOuterMomentum = "momentum.";

// What members have to agree on; a row for each.
std::vector<double> row_of(const Averaging& how, const Tensors& parameters) {
  double elements = 0;
  for (const Tensor& p : parameters) elements += static_cast<double>(p.numel());
  return {static_cast<double>(how.every),
          static_cast<double>(how.after),
          how.outer_lr,
          how.outer_momentum,
          how.nesterov ? 1. : 0.,
          static_cast<double>(parameters.size()),
          elements};
}

std::string text_of_row(const std::vector<double>& row) {
  const Averaging how{.every = static_cast<int64_t>(row[0]),
                      .after = static_cast<int64_t>(row[1]),
                      .outer_lr = row[2],
                      .outer_momentum = row[3],
                      .nesterov = row[4] != 0};
  return fmt::format("{} of {} parameters with {} elements", how.str(), row[5], row[6]);
}

}  // namespace

void Averaging::check() const {
  const auto refuse = [](const std::string& got, const char* expected) {
    throw_invalid(fmt::format("{}{}: expected {}", kOfAverage, got, expected));
  };
  if (every < 0)
    refuse(fmt::format("every {} steps", every), "1 or more, or 0 for gradients that are summed in each");
  if (after < 0) refuse(fmt::format("after {} steps", after), "0 or more");
  if (!(outer_lr > 0) || !std::isfinite(outer_lr))
    refuse(fmt::format("outer_lr {}", outer_lr), "a number above 0");
  if (!(outer_momentum >= 0 && outer_momentum < 1))
    refuse(fmt::format("outer_momentum {}", outer_momentum), "at least 0 and below 1");
  if (!on() && (after != 0 || has_outer()))
    refuse("every 0 steps, with " + str(), "every 1 or more: without it there is no mean");
}

std::string Averaging::str() const {
  std::string all = fmt::format("every {} steps", every);
  if (after) all += fmt::format(", after {}", after);
  if (has_outer()) all += fmt::format(", outer_lr {}, outer_momentum {}", outer_lr, outer_momentum);
  if (outer_momentum != 0 && !nesterov) all += ", not nesterov";
  return all;
}

ParameterAverage::ParameterAverage(Group group, const Tensors& parameters, const Averaging& how,
                                   const std::string& name)
    : use_(name_in_group(group, name, kOfAverage)), group_(std::move(group)), how_(how) {
  how_.check();
  if (!how_.on()) throw_invalid(std::string(kOfAverage) + "every 0 steps: expected 1 or more");
  for (const Tensor& p : parameters)
    if (p.requires_grad() || (p.is_leaf() && is_floating(p.dtype()))) parameters_.push_back(p);
  if (use_.name().empty())
    throw_invalid(
        fmt::format("{}rank {} of this group has a mean \"{}\" already: give this one another name, on all "
                    "members",
                    kOfAverage, group_.rank(), name));
  remember();
}

ParameterAverage::Kinds ParameterAverage::kinds() const {
  Kinds all;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].requires_grad()) continue;  // frozen now: a mean would round it
    const auto at = std::ranges::find_if(all, [&](const auto& kind) {
      const Tensor& first = parameters_[kind[0]];
      return first.dtype() == parameters_[i].dtype() && first.device() == parameters_[i].device();
    });
    if (at == all.end())
      all.push_back({i});
    else
      at->push_back(i);
  }
  return all;
}

CollectiveOptions ParameterAverage::options_of(const std::string& tag) const {
  return {.tag = tag, .single_use = true, .gradients = false};
}

void ParameterAverage::remember() {
  if (!how_.has_outer() || !anchors_.empty() || !is_local()) return;
  const NoGradGuard guard;
  for (const Tensor& p : parameters_)
    anchors_.push_back(p.detach().to(compute_dtype(p.dtype())).clone_data());
}

void ParameterAverage::begin_anew() { anchors_.clear(), since_ = 0; }

// Several optimizers that step in one context make one step.
void ParameterAverage::count_step(uint64_t context) {
  if (context != 0 && context == last_context_) return;
  last_context_ = context;
  if (is_local()) ++since_;
  if (++steps_ == how_.after) remember();
}

void ParameterAverage::take_mean(const Tensors& mean) {
  const NoGradGuard guard;
  if (how_.outer_momentum != 0 && momenta_.empty())
    for (const Tensor& a : anchors_) momenta_.push_back(zeros_like(a));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    if (!mean[i].defined()) continue;
    if (!how_.has_outer()) {
      p.detach().copy_(mean[i]);
      continue;
    }
    const Tensor off = ops::sub(anchors_[i], mean[i].to(anchors_[i].dtype()));
    Tensor step = off;
    if (how_.outer_momentum != 0) {
      Tensor& momentum = momenta_[i];
      momentum = ops::add(ops::mul(momentum, how_.outer_momentum), off);
      step = how_.nesterov ? ops::add(off, ops::mul(momentum, how_.outer_momentum)) : momentum;
    }
    anchors_[i] = ops::sub(anchors_[i], ops::mul(step, how_.outer_lr));
    p.detach().copy_(anchors_[i].to(p.dtype()));
  }
  since_ = 0;
  ++means_;
}

Task<void> ParameterAverage::average_as(std::string tag) {
  const Kinds kinds = this->kinds();
  const auto mean_options = [&](const std::string& own) {
    CollectiveOptions options = options_of(own);
    options.op = ReduceOp::mean;
    return options;
  };
  std::vector<Future<Tensors>> summing;
  for (const auto& kind : kinds) {
    Tensors mine;
    for (const size_t i : kind) mine.push_back(parameters_[i].detach());
    summing.push_back(
        group_.all_reduce(std::move(mine), mean_options(fmt::format("{}/{}", tag, summing.size()))));
  }
  Tensors mean(parameters_.size());
  for (size_t k = 0; k < kinds.size(); ++k) {
    const Tensors came = co_await summing[k];
    for (size_t j = 0; j < came.size(); ++j) mean[kinds[k][j]] = came[j];
  }
  take_mean(mean);  // at once: it has all of them, or none
}

Task<void> ParameterAverage::take_from(size_t rank, std::string tag) {
  const bool mine = group_.rank() == rank;
  const auto send = [&](const std::string& what, const Tensor& t) {
    return group_.broadcast(t, rank, options_of(tag + what));
  };
  const auto telling = send("/progress", tensor(std::vector<int64_t>{steps_, since_, means_}, int64));
  std::vector<Future<Tensor>> values, anchors, momenta;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    const auto tag_of = [&](const char* what) { return fmt::format("/{}{}", what, i); };
    values.push_back(send(tag_of("value."), p.detach()));
    const Tensor like = how_.has_outer() ? p.detach().to(compute_dtype(p.dtype())) : Tensor();
    if (how_.has_outer()) anchors.push_back(send(tag_of(kOuterAnchor), mine ? anchors_[i] : like));
    if (how_.outer_momentum != 0)
      momenta.push_back(
          send(tag_of(kOuterMomentum), mine && !momenta_.empty() ? momenta_[i] : zeros_like(like)));
  }
  const Tensor progress = co_await telling;
  Tensors came, new_anchors, new_momenta;
  for (const auto& v : values) came.push_back(co_await v);
  for (const auto& a : anchors) new_anchors.push_back(co_await a);
  for (const auto& m : momenta) new_momenta.push_back(co_await m);
  if (mine) co_return;
  const NoGradGuard guard;
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].detach().copy_(came[i]);
  anchors_ = std::move(new_anchors), momenta_ = std::move(new_momenta);
  const auto at = progress.to_vector<int64_t>();
  steps_ = at[0], since_ = at[1], means_ = at[2];
}

Task<void> ParameterAverage::compare(std::string tag) const {
  const Tensor mine = tensor(row_of(how_, parameters_), float64).reshape({1, -1});
  const auto gathering = group_.all_gather(mine, options_of(tag));
  const Tensor all = co_await gathering;
  const auto first = all.select(0, 0).to_vector<double>();
  for (int64_t r = 1; r < all.size(0); ++r)
    if (const auto row = all.select(0, r).to_vector<double>(); row != first)
      throw_invalid(fmt::format("{}members bring other means: {} {}, {} {}: give all the same", kOfAverage,
                                group_.label(0), text_of_row(first), group_.label(static_cast<size_t>(r)),
                                text_of_row(row)));
}

Task<void> ParameterAverage::average() {
  const std::string tag = fmt::format("{}/{}", use_.name(), ++calls_);
  const auto comparing = compare(tag + "/how");
  co_await comparing;
  const auto averaging = average_as(tag);
  co_await averaging;
}

Task<bool> ParameterAverage::step() {
  count_step(0);
  if (!is_due()) co_return false;
  const auto averaging = average();
  co_await averaging;
  co_return true;
}

StateDict ParameterAverage::state() const {
  StateDict out{{kProgress, tensor(std::vector<int64_t>{steps_, since_, means_}, int64)}};
  const auto add = [&](const char* what, const Tensors& all) {
    for (size_t i = 0; i < all.size(); ++i) out[what + std::to_string(i)] = internal::lazy_copy(all[i]);
  };
  add(kOuterAnchor, anchors_);
  add(kOuterMomentum, momenta_);
  return out;
}

void ParameterAverage::load_state(const StateDict& state) {
  Tensors anchors, momenta;
  size_t known = 0;
  const auto take = [&](const std::string& name) {
    const auto at = state.find(name);
    if (at == state.end()) return Tensor();
    ++known;
    return at->second.clone_data();
  };
  const Tensor progress = take(kProgress);
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (const auto& [what, all] : {std::pair{kOuterAnchor, &anchors}, {kOuterMomentum, &momenta}})
      if (const Tensor t = take(what + std::to_string(i)); t.defined()) {
        if (t.shape() != parameters_[i].shape())
          throw_invalid(fmt::format("{}the state has {}{} as {}, for a parameter {}", kOfAverage, what, i,
                                    t.summary(), parameters_[i].summary()));
        all->push_back(t);
      }
  const auto whole = [&](const Tensors& all) { return all.empty() || all.size() == parameters_.size(); };
  if (!progress.defined() || progress.numel() != 3 || known != state.size() || !whole(anchors) ||
      !whole(momenta))
    throw_invalid(
        fmt::format("{}the state has {} tensors, of which {} are of these {} parameters: give it the "
                    "parameters that it had",
                    kOfAverage, state.size(), known, parameters_.size()));
  if ((!anchors.empty() && !how_.has_outer()) || (!momenta.empty() && how_.outer_momentum == 0))
    throw_invalid(
        fmt::format("{}the state is of an outer optimizer{}, and this one is {}: write the outer_lr and the "
                    "outer_momentum that it had",
                    kOfAverage, momenta.empty() ? "" : " with momentum", how_.str()));
  const auto at = progress.to_vector<int64_t>();
  if (anchors.empty() && how_.has_outer() && at[1] > 0)
    throw_invalid(
        fmt::format("{}the state is {} steps behind a mean without an outer optimizer, and this one is {}: "
                    "write outer_lr = 1 and no outer_momentum until the next mean",
                    kOfAverage, at[1], how_.str()));
  anchors_ = std::move(anchors), momenta_ = std::move(momenta);
  steps_ = at[0], since_ = at[1], means_ = at[2];
}

}  // namespace troupe::parallel
