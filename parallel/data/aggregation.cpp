#include "parallel/data/aggregation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/even_sizes.h"
#include "core/graph/node.h"
#include "ops/ops.h"

namespace troupe::parallel {
namespace {

constexpr const char* kOfAggregation = "[aggregation]";

void refuse_number(const std::string& name, const std::optional<double>& number) {
  if (number)
    throw_invalid(
        fmt::format("{} {}({}): expected \"{}\", which has no number", kOfAggregation, name, *number, name));
}

Tensor sorted_rows(const Tensor& all) { return ops::sort(all, 0).values; }

Tensor mean_of_rows(const Tensor& sorted, int64_t from, int64_t to) {
  return ops::mean(sorted.slice(0, from, to), {0});
}

AggregationRule median_rule(std::optional<double> number) {
  refuse_number("median", number);
  return [](const Tensor& all) {
    const int64_t n = all.size(0);
    return mean_of_rows(sorted_rows(all), (n - 1) / 2, n / 2 + 1);
  };
}

AggregationRule trimmed_rule(std::optional<double> number) {
  const double fraction = number.value_or(-1);
  if (!(fraction >= 0 && fraction < 0.5))
    throw_invalid(
        fmt::format("{} trimmed_mean{}: expected the fraction of the members to leave out at each end, at "
                    "least 0 and below 0.5, as trimmed_mean(0.25)",
                    kOfAggregation, number ? fmt::format("({})", *number) : ""));
  return [fraction](const Tensor& all) {
    const int64_t n = all.size(0), cut = static_cast<int64_t>(fraction * static_cast<double>(n));
    return mean_of_rows(sorted_rows(all), cut, n - cut);
  };
}

AggregationRule clipped_rule(std::optional<double> number) {
  const double bound = number.value_or(0);
  if (!(bound > 0) || !std::isfinite(bound))
    throw_invalid(
        fmt::format("{} clipped_mean{}: expected the largest size of an element, above 0, as clipped_mean(1)",
                    kOfAggregation, number ? fmt::format("({})", *number) : ""));
  return [bound](const Tensor& all) {
    const Tensor known = ops::where(ops::ne(all, all), zeros_like(all), all);
    return ops::mean(ops::clamp(known, -bound, bound), {0});
  };
}

auto& rules_by_name() {
  static internal::parallel::NamedFunctions<AggregationRule> all(
      kOfAggregation,
      {{"median", median_rule}, {"trimmed_mean", trimmed_rule}, {"clipped_mean", clipped_rule}});
  return all;
}

// One behind the other, as rows, so that they can be divided.
Tensor flat_elements(const Tensors& all) {
  Tensors flat;
  for (const Tensor& t : all) flat.push_back(t.reshape({t.numel()}));
  return ops::cat(flat, 0);
}

Tensors in_shapes_of(const Tensor& flat, const Tensors& like) {
  Tensors out;
  int64_t at = 0;
  for (const Tensor& t : like) {
    out.push_back(flat.slice(0, at, at + t.numel()).reshape(t.shape()));
    at += t.numel();
  }
  return out;
}

// What this member sends to each.
Tensors parts_for_all(const Tensor& flat, size_t members) {
  Tensors parts;
  const auto n = static_cast<int64_t>(members);
  for (int64_t r = 0; r < n; ++r)
    parts.push_back(flat.slice(0, internal::even_begin(flat.numel(), r, n),
                               internal::even_begin(flat.numel(), r + 1, n)));
  return parts;
}

Tensor ruled(const AggregationRule& rule, const Tensors& came) {
  const NoGradGuard guard;
  const Tensor all = ops::stack(came, 0);
  if (all.numel() == 0) return came[0];
  Tensor out = rule(all);
  if (!out.defined() || out.shape() != came[0].shape() || out.dtype() != all.dtype() ||
      out.device() != all.device())
    throw_invalid(
        fmt::format("{} the rule made {} of {}: expected an element of the same dtype for each column",
                    kOfAggregation, out.defined() ? out.summary() : "nothing", all.summary()));
  return out;
}

Task<Tensors> ruled_over(Bucket bucket, Tensor flat, AggregationRule rule) {
  const auto sending = bucket.all_to_all(parts_for_all(flat, bucket.members()));
  const Tensors came = co_await sending;
  const auto gathering = bucket.all_gather(ruled(rule, came));
  const Tensor all = co_await gathering;
  co_return in_shapes_of(all, bucket.gradients());
}

}  // namespace

void register_aggregation(const std::string& name,
                          internal::parallel::NamedFunctions<AggregationRule>::Make make) {
  rules_by_name().add(name, std::move(make));
}

AggregationRule aggregation_named(const std::string& text) {
  if (text == "mean") return nullptr;
  AggregationRule rule = rules_by_name().find(text);
  if (!rule)
    throw_invalid(fmt::format("{} \"{}\"; expected mean, or one of those that are registered here: {}",
                              kOfAggregation, text, rules_by_name().names()));
  return rule;
}

BucketReduction aggregated(AggregationRule rule) {
  return [rule = std::move(rule)](Bucket bucket) {
    // Its parts of the mean become means over each member's rows.
    const Tensor flat = ops::mul(flat_elements(bucket.gradients()), static_cast<double>(bucket.members()));
    return ruled_over(std::move(bucket), flat, rule);
  };
}

Task<Tensors> aggregate(Group group, Tensors mine, AggregationRule rule, std::string tag) {
  const auto all = std::make_shared<Bucket::All>(Bucket::All{
      .group = group, .options = {.tag = std::move(tag), .single_use = true, .gradients = false}});
  all->gradients = mine;
  try {
    if (!rule)
      throw_invalid(std::string(kOfAggregation) +
                    " no rule is given: write group.all_reduce(x, {.op = ReduceOp::mean})");
    const auto ruling = ruled_over(Bucket(all), flat_elements(mine), rule);
    Tensors out = co_await ruling;
    co_return out;
  } catch (...) {
    const Error why = current_error();
    const std::string of_rank = fmt::format("{} it has failed on rank ", kOfAggregation);
    if (why.message().starts_with(of_rank)) throw;  // who failed has told all
    const Error told(
        why.kind(),
        fmt::format("{}{} ({}): {}", of_rank, group.rank(), group.label(group.rank()), why.message()), {},
        why.worker());
    give_up_bucket(*all, told);
    throw told;
  }
}

}  // namespace troupe::parallel
