#include "parallel/measure/measurer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "actors/cell/actor_cell.h"
#include "actors/worker/worker.h"
#include "collective/engine.h"
#include "core/base/clock.h"
#include "core/base/process_facts.h"
#include "core/base/thread.h"
#include "core/memory/cpu_allocator.h"
#include "core/tensor/creation.h"
#include "nn/make.h"
#include "ops/reduce.h"
#include "parallel/measure/model_layers.h"
#include "parallel/measure/timed_layer.h"
#include "rref/here.h"

namespace troupe::internal::parallel {
namespace {

using troupe::parallel::LayerCost;
using troupe::parallel::LinkCost;
using troupe::parallel::RowTime;

constexpr int64_t kFewRows = 4;                                   // a part of the sample's
constexpr int64_t kLinkBytes = 4 << 20;                           // of a message of many bytes
constexpr Duration kBetweenCalls = std::chrono::milliseconds(1);  // who is called sleeps by then
constexpr int64_t kNormsOfALayer = 3;  // what ranks do not divide takes as long as so many norms

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(Clock::system().now() - start).count();
}
double middle(std::vector<double> all) {
  std::ranges::nth_element(all, all.begin() + static_cast<ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

// The line through what few rows took, and many.
RowTime line(double few, double many, double few_rows, double many_rows) {
  if (many_rows <= few_rows) return {0, many / many_rows};
  const double per_row = std::max(0.0, (many - few) / (many_rows - few_rows));
  return {std::max(0.0, many - per_row * many_rows), per_row};
}

double largest_of(nn::Module& module) {
  double most = 0;
  for (const Tensor& p : module.parameters()) most = std::max(most, static_cast<double>(p.nbytes()));
  return most;
}

// What each rank of "tp" has whole: norms, and the biases behind sums.
bool is_on_each_rank(const std::string& name) {
  return name.starts_with("norm") || name == "self_attn.out_proj.bias" || name == "out_proj.bias" ||
         name == "linear2.bias";
}

int64_t whole_number(const ValueMap& spec, const char* name, int64_t otherwise) {
  const auto at = spec.find(name);
  const auto* n = at == spec.end() ? nullptr : at->second.get_if<int64_t>();
  return n ? *n : otherwise;
}

// What ranks of "tp" divide of a transformer layer or an attention; `cost` is of the whole one.
void divide(LayerCost& cost, const ValueMap& spec, nn::Layer& layer, const Tensor& x, const TimedLayer& took,
            int64_t repeats) {
  const bool attention_alone = cost.name == "multihead_attention";
  cost.heads = std::max<int64_t>(1, whole_number(spec, "heads", 1));
  cost.sums = attention_alone ? 1 : 2;
  double on_each = 0;
  for (const auto& [name, p] : layer.named_parameters())
    if (is_on_each_rank(name)) on_each += static_cast<double>(p.nbytes());
  cost.parameters_divided = cost.parameters > 0 ? 1 - on_each / cost.parameters : 0;
  const auto norm = nn::make(nn::spec_of("layer_norm", {ValueList{x.size(-1)}}));
  norm->to(x.device());
  const double norms = attention_alone ? 0 : kNormsOfALayer * time_layer(*norm, x, repeats).total();
  cost.time_divided = std::clamp(1 - norms / std::max(took.total(), 1e-12), 0.0, 1.0);
  // The inputs of norms and of the linear layers behind them.
  const double whole = attention_alone ? 1 : 4;
  cost.saved_divided = std::clamp(1 - whole * cost.output / std::max(cost.saved, 1.0), 0.0, 1.0);
}

LayerCost measured(const Value& value, Tensor& few, Tensor& many, int64_t repeats) {
  LayerCost cost;
  const auto layer = nn::make(value);
  layer->to(many.device());
  const Value spec_value = nn::spec_of("sequential", {Value(ValueList{value})});
  const ValueMap spec =
      *spec_value.get_if<ValueMap>()->at("layers").get_if<ValueList>()->at(0).get_if<ValueMap>();
  cost.name = *spec.at("module").get_if<std::string>();
  const TimedLayer a = time_layer(*layer, few, repeats), b = time_layer(*layer, many, repeats);
  const auto few_rows = static_cast<double>(few.size(0)), many_rows = static_cast<double>(many.size(0));
  cost.forward = line(a.forward, b.forward, few_rows, many_rows);
  cost.input = line(a.input, b.input, few_rows, many_rows);
  cost.weight = line(a.weight, b.weight, few_rows, many_rows);
  cost.backward = line(a.backward, b.backward, few_rows, many_rows);
  cost.adding = std::max(0.0, (a.adding + b.adding) / 2);
  cost.saved = line(a.saved, b.saved, few_rows, many_rows).per_row;
  cost.working = line(a.working, b.working, few_rows, many_rows).per_row;
  cost.output = static_cast<double>(b.y.nbytes()) / many_rows;
  cost.parameters = bytes_of(layer->parameters()), cost.largest = largest_of(*layer);
  if (cost.name == "transformer_encoder_layer" || cost.name == "multihead_attention")
    divide(cost, spec, *layer, many, b, repeats);
  few = a.y, many = b.y;
  return cost;
}

void add(RowTime& sum, RowTime more) { sum.fixed += more.fixed, sum.per_row += more.per_row; }

void add_loss(LayerCost& last, const Tensor& few, const Tensor& many, int64_t repeats) {
  if (!SomeLoss::has(many)) return;
  SomeLoss loss;
  const TimedLayer a = time_layer(loss, few, repeats), b = time_layer(loss, many, repeats);
  const auto few_rows = static_cast<double>(few.size(0)), many_rows = static_cast<double>(many.size(0));
  const auto through = [&](double TimedLayer::* part) { return line(a.*part, b.*part, few_rows, many_rows); };
  add(last.forward, through(&TimedLayer::forward));
  add(last.input, through(&TimedLayer::input));
  add(last.backward, through(&TimedLayer::backward));
  last.saved += through(&TimedLayer::saved).per_row;
}

}  // namespace

double Measurer::most_tensors() { return static_cast<double>(take_cpu_peak()); }

MeasuredPlace Measurer::place() {
  release_cached_memory();
  actors::Worker& worker = actors::current_cell()->worker();
  std::string host;
  for (const auto& m : worker.members().all())
    if (m.id == worker.id()) host = m.host;
  return {fmt::format("{} {}", host, process_facts().pid), usable_cores(),
          static_cast<double>(process_facts().memory), static_cast<double>(allocator_stats().in_use)};
}

std::vector<LayerCost> Measurer::layers(Value model, Tensor sample, std::string device, int64_t repeats) {
  const ValueList layers = layers_of(model);
  sample = sample.to(Device(device));
  Tensor many = sample, few = sample.slice(0, 0, std::max<int64_t>(1, sample.size(0) / kFewRows)).clone();
  std::vector<LayerCost> costs;
  for (const Value& layer : layers) costs.push_back(measured(layer, few, many, repeats));
  add_loss(costs.back(), few, many, repeats);
  return costs;
}

WholePass Measurer::whole_pass(Value model, int64_t layers, Tensor sample, std::string device) {
  ValueList some = layers_of(model);
  if (std::cmp_less(layers, some.size())) some.resize(static_cast<size_t>(layers));
  return time_whole_pass(some, sample.to(Device(device)), std::cmp_equal(layers, layers_of(model).size()));
}

Task<LinkCost> Measurer::link(RRef<Measurer> other, std::string device, int64_t repeats) {
  // In a step others compute between calls, and whoever waited for them sleeps.
  const auto computes = [&](const Tensor& x) {
    for (const TimePoint from = Clock::system().now(); Clock::system().now() - from < kBetweenCalls;)
      (void)ops::sum(x);
  };
  const auto round = [&](const Tensor& x, int64_t times) -> Task<double> {
    std::vector<double> took;
    for (int64_t k = 0; k < times + 2; ++k) {  // the first make connections
      computes(x);
      backend_of(x.device()).synchronize(x.device());
      const TimePoint start = Clock::system().now();
      const auto answer = other.call<&Measurer::take>(x);
      co_await answer;
      if (k >= 2) took.push_back(seconds_since(start));
    }
    co_return middle(took);
  };
  const Tensor small = zeros({16}).to(Device(device)), large = ones({kLinkBytes / 4}).to(Device(device));
  Task<double> few = round(small, 8 * repeats);
  const double short_round = co_await std::move(few);
  Task<double> many = round(large, repeats);
  const double long_round = co_await std::move(many);
  co_return {short_round / 2, kLinkBytes / std::max(long_round - short_round, 1e-9)};
}

Task<collective::Links> Measurer::sums(Group group) {
  const auto tuning = group.tune();
  co_await tuning;
  const auto known =
      collective::GroupEngine::of(actors::current_cell()->worker()).links().find(collective::ids_of(group));
  co_return known.value_or(collective::Links());
}

}  // namespace troupe::internal::parallel
