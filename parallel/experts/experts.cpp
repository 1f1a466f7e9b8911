#include "parallel/experts/experts.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "parallel/tensor/convert.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/meetings.h"

namespace troupe::parallel {

using internal::parallel::Choices;
using internal::parallel::Routes;

namespace {

// A list of numbers for operators.
Tensor numbers(const std::vector<int64_t>& list, const Device& device) {
  return tensor(list, int64).to(device);
}

void check_sizes(int64_t width, int64_t hidden, int64_t experts, const ExpertsOptions& o) {
  if (width < 1 || hidden < 1 || experts < 1 || o.shared < 0)
    throw_invalid(fmt::format("[experts] width {}, hidden {}, {} experts, shared {}: sizes are at least 1",
                              width, hidden, experts, o.shared));
  if (o.top_k < 1 || o.top_k > experts)
    throw_invalid(
        fmt::format("[experts] top_k is {} of {} experts: give 1 to {}", o.top_k, experts, experts));
  if (!(o.capacity >= 0) || !std::isfinite(o.capacity))
    throw_invalid(
        fmt::format("[experts] capacity is {}: give a factor above 0, or 0 to drop none", o.capacity));
  if (o.activation != "gelu" && o.activation != "relu")
    throw_invalid(fmt::format("[experts] activation is \"{}\", expected \"gelu\" or \"relu\"", o.activation));
}

}  // namespace

Experts::Experts(Group group, int64_t width, int64_t hidden, int64_t experts, const Options& options)
    : group_(std::move(group)),
      rank_(tp::rank_in(group_)),
      width_(width),
      hidden_(hidden),
      experts_(experts),
      options_(options),
      sizes_(tp::even_sizes(experts, std::max<size_t>(group_.size(), 1))) {
  check_sizes(width, hidden, experts, options);
  draw(nullptr);
}

tp::Placements Experts::placements() const {
  const auto cut = [&](const Shape& whole) { return tp::Placement::cut(whole, 0, sizes_, rank_); };
  return {{"w1", cut({experts_, hidden_, width_})},
          {"b1", cut({experts_, hidden_})},
          {"w2", cut({experts_, width_, hidden_})},
          {"b2", cut({experts_, width_})}};
}

// All are drawn as in one process, and the rank takes its part.
void Experts::draw(Generator* generator) {
  const auto places = placements();
  const auto drawn = [&](const Shape& shape, int64_t in) {
    Tensor t = empty(shape, options_.dtype);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    if (generator)
      nn::init::uniform_(t, -bound, bound, *generator);
    else
      nn::init::uniform_(t, -bound, bound);
    return t;
  };
  const auto part = [&](Tensor& to, const char* name, const Shape& shape, int64_t in) {
    tp::put(to, places.at(name).of(drawn(shape, in)), group_);
  };
  const auto copy = [&](Tensor& to, const Shape& shape, int64_t in) {
    Tensor t = drawn(shape, in);
    const NoGradGuard off;
    if (to.defined())
      to.copy_(t);
    else
      to = t.requires_grad_();
  };
  copy(router, {experts_, width_}, width_);
  part(w1, "w1", {experts_, hidden_, width_}, width_), part(b1, "b1", {experts_, hidden_}, width_);
  part(w2, "w2", {experts_, width_, hidden_}, hidden_), part(b2, "b2", {experts_, width_}, hidden_);
  if (!options_.shared) return;
  copy(shared_w1, {options_.shared, width_}, width_), copy(shared_b1, {options_.shared}, width_);
  copy(shared_w2, {width_, options_.shared}, options_.shared), copy(shared_b2, {width_}, options_.shared);
}

void Experts::reset(Generator& generator) { draw(&generator); }

void Experts::members(nn::Members& m) {
  m("router", router), m("w1", w1), m("b1", b1), m("w2", w2), m("b2", b2);
  if (!options_.shared) return;
  m("shared_w1", shared_w1), m("shared_b1", shared_b1), m("shared_w2", shared_w2), m("shared_b2", shared_b2);
}

std::string Experts::str() const {
  return fmt::format("Experts({}, {}, {} experts, top {})", width_, hidden_, experts_, options_.top_k);
}

Tensor Experts::activated(const Tensor& x) const {
  return options_.activation == "gelu" ? ops::gelu(x) : ops::relu(x);
}

// A copy that each rank uses for its own tokens.
Tensor Experts::whole(const Tensor& weight, const char* name) const {
  return tp::enter(weight, group_, group_.size() > 1 ? str() + "." + name : "");
}

Tensor Experts::shared(const Tensor& x) const {
  const Tensors own = tp::enter({shared_w1, shared_b1, shared_w2, shared_b2}, group_,
                                group_.size() > 1 ? str() + ".shared" : "");
  return ops::linear(activated(ops::linear(x, own[0], own[1])), own[2], own[3]);
}

// What the rank's experts make of the rows that came, which stay in their places. Experts without rows have
// zeros as gradients, as in one process, also where no row came: an optimizer steps all or none.
Tensor Experts::own(const Tensor& rows, const Routes& routes) const {
  if (routes.of_expert.empty()) return rows;
  const Tensor sorted = ops::index_select(rows, 0, numbers(routes.by_expert, rows.device()));
  const Tensors first = ops::split(w1, 1), first_bias = ops::split(b1, 1), second = ops::split(w2, 1),
                second_bias = ops::split(b2, 1);
  Tensors out;
  int64_t from = 0;
  for (size_t e = 0; e < routes.of_expert.size(); ++e) {
    const int64_t count = routes.of_expert[e];
    if (!count && (rows.size(0) || e)) continue;
    const Tensor x = ops::slice(sorted, 0, from, from + count);
    const Tensor inner =
        ops::linear(x, ops::reshape(first[e], {hidden_, width_}), ops::reshape(first_bias[e], {hidden_}));
    out.push_back(ops::linear(activated(inner), ops::reshape(second[e], {width_, hidden_}),
                              ops::reshape(second_bias[e], {width_})));
    from += count;
  }
  std::vector<int64_t> back(routes.by_expert.size());
  for (size_t i = 0; i < back.size(); ++i)
    back[static_cast<size_t>(routes.by_expert[i])] = static_cast<int64_t>(i);
  return ops::index_select(ops::cat(out, 0), 0, numbers(back, rows.device()));
}

Task<Choices> Experts::choices_of_all(std::vector<int64_t> mine) const {
  if (group_.size() <= 1) co_return Choices{mine};
  const tp::Meeting at = tp::MeetingsOfWorker::here("experts")->next(group_, "experts", str());
  const CollectiveOptions options{.tag = at.tag, .rows = std::vector<int64_t>(group_.size(), experts_)};
  const Tensor told_here = tensor(mine, int64);
  at.count(static_cast<int64_t>(told_here.nbytes() * (group_.size() - 1)));
  const auto telling = at.group.all_gather(told_here, options);
  const Tensor told = co_await telling;
  const auto all = told.to_vector<int64_t>();
  Choices of_ranks;
  for (auto from = all.begin(); from != all.end(); from += experts_)
    of_ranks.emplace_back(from, from + experts_);
  co_return of_ranks;
}

int64_t Experts::capacity_of(int64_t choices) const {
  if (options_.capacity == 0) return -1;
  return static_cast<int64_t>(
      std::ceil(options_.capacity * static_cast<double>(choices) / static_cast<double>(experts_)));
}

Task<Mixture> Experts::operator()(Tensor x) {
  if (!x.defined() || x.dim() < 1 || x.size(-1) != width_ || !is_floating(x.dtype()))
    throw_invalid(fmt::format("[experts] the input is {}, expected [..., {}] of floats",
                              x.defined() ? x.summary() : "undefined", width_));
  const int64_t count = x.numel() / width_, k = options_.top_k;
  const Tensor tokens = ops::reshape(x, {count, width_});
  const Tensor logits = ops::linear(tokens, whole(router, "router"));
  const Tensor chances = ops::softmax(ops::to(logits, compute_dtype(x.dtype())), -1);
  const auto best = ops::topk(chances, k);
  Tensor weights = best.values;
  if (options_.normalize && k > 1) weights = ops::div(weights, ops::sum(weights, {-1}, true));

  const auto chosen = best.indices.to(cpu).to_vector<int64_t>();
  std::vector<int64_t> mine(static_cast<size_t>(experts_), 0);
  for (const int64_t e : chosen) ++mine[static_cast<size_t>(e)];
  Task<Choices> telling = choices_of_all(mine);
  const Choices all = co_await std::move(telling);
  Mixture result{.y = {}, .balance = {}, .tokens = std::vector<int64_t>(mine.size(), 0)};
  for (const auto& of_rank : all)
    for (size_t e = 0; e < mine.size(); ++e) result.tokens[e] += of_rank[e];
  const int64_t choices = std::accumulate(result.tokens.begin(), result.tokens.end(), int64_t{0});
  const Choices kept = internal::parallel::kept_of(all, capacity_of(choices));
  result.dropped = choices;
  for (const auto& of_rank : kept)
    result.dropped -= std::accumulate(of_rank.begin(), of_rank.end(), int64_t{0});

  const Routes routes(chosen, kept, sizes_, rank_);
  std::vector<int64_t> token_of;
  for (const int64_t choice : routes.order) token_of.push_back(choice / k);
  const Tensor from = numbers(token_of, x.device());
  const auto going = tp::route_known(ops::index_select(tokens, 0, from), group_, routes.rows, str());
  const Tensor came = co_await going;
  Choices home = routes.rows;
  for (size_t k = 0; k < home.size(); ++k)
    for (size_t r = 0; r < home.size(); ++r) home[k][r] = routes.rows[r][k];
  const auto returning = tp::route_known(own(came, routes), group_, home, str());
  const Tensor made = co_await returning;
  const Tensor by_weight =
      ops::index_select(ops::reshape(weights, {count * k}), 0, numbers(routes.order, x.device()));
  const Tensor weighted = ops::mul(made, ops::to(ops::unsqueeze(by_weight, -1), made.dtype()));
  Tensor y = ops::index_add(zeros({count, width_}, made.options()), 0, from, weighted);
  if (options_.shared) y = ops::add(y, shared(tokens));
  result.y = ops::reshape(y, IntList(x.shape()));

  const auto adding = tp::sum(ops::sum(chances, {0}), group_, str());
  const Tensor total = co_await adding;
  const double each =
      choices ? static_cast<double>(experts_ * k) / std::pow(static_cast<double>(choices), 2) : 0;
  const Tensor shares = ops::mul(numbers(result.tokens, x.device()).to(total.dtype()), each);
  result.balance = ops::sum(ops::mul(whole(total, "balance"), shares));
  co_return result;
}

}  // namespace troupe::parallel
