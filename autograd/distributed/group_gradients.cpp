#include "autograd/distributed/group_gradients.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "actors/cell/actor_cell.h"
#include "core/base/generator.h"
#include "core/graph/saved_tensor.h"
#include "core/tensor/creation.h"
#include "net/wire/wire.h"
#include "ops/arithmetic.h"
#include "ops/index.h"
#include "ops/view.h"

namespace troupe::autograd {

using internal::collective::CalledOperation;
using internal::collective::Collective;
using internal::collective::row_of;
using internal::collective::rows_of;
using internal::collective::with_rows;

namespace {

// A step with the rule that it is given, of operators: so it can be differentiated again.
class StepOfGroup final : public Node {
 public:
  using Rule = std::function<Tensors(const Tensors&)>;
  StepOfGroup(std::string name, size_t results, Edges next, Rule rule)
      : name_(std::move(name)), rule_(std::move(rule)) {
    num_inputs_ = static_cast<uint32_t>(results);
    set_next(std::move(next));
  }
  Tensors apply(Tensors&& grads) override { return rule_(grads); }
  std::string name() const override { return name_; }

 private:
  const std::string name_;
  const Rule rule_;
};

bool is_any(const Tensors& grads) {
  return std::ranges::any_of(grads, [](const Tensor& g) { return g.defined(); });
}

// In the order of the ranks, whichever come first.
Tensor sum_of(const Tensors& grads, size_t from, size_t step) {
  Tensor sum;
  for (size_t i = from; i < grads.size(); i += step)
    if (grads[i].defined()) sum = sum.defined() ? ops::add(sum, grads[i]) : grads[i];
  return sum;
}

// Some of the pieces may not have come; one at least has.
Tensor joined(const Tensors& grads, const std::vector<Shape>& shapes) {
  const Tensor& one = *std::ranges::find_if(grads, [](const Tensor& g) { return g.defined(); });
  Tensors all;
  for (size_t r = 0; r < grads.size(); ++r)
    all.push_back(grads[r].defined() ? grads[r] : zeros(shapes[r], one.options()));
  return ops::cat(all, 0);
}

Tensor in_shape(const Tensor& g, const Shape& shape) {
  return !g.defined() || g.shape() == shape ? g : ops::reshape(g, IntList(shape));
}

bool joins(Collective c) { return c == Collective::reduce_scatter || c == Collective::scatter; }
bool adds(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce || c == Collective::reduce_scatter;
}

class Recorded final : public internal::collective::RecordedOperation {
 public:
  Recorded(CalledOperation called, Tensors& brings, Contexts::StatePtr state, uint64_t context,
           Recorder& recorder);
  void called(uint64_t use) override;
  void know(std::vector<int64_t> rows) override { rows_ = std::move(rows); }
  Tensors gave(const Tensors& results) override;
  void failed() override {
    for (const uint64_t pair : pairs_) state_->drop_send(pair);
  }

 private:
  size_t me() const { return called_.at.rank; }
  size_t ranks() const { return called_.at.ranks; }
  bool of_all_to_all() const { return called_.collective == Collective::all_to_all; }
  // How many tensors go from rank to rank.
  size_t together() const { return together_; }
  bool brings_to(size_t rank) const;
  bool gets_from(size_t rank) const;
  Edges of_slot(size_t rank) const;
  StepOfGroup::Rule rule_of_brought(const Tensors& brings) const;
  StepOfGroup::Rule rule_of_got(size_t results) const;
  uint64_t pair(size_t from, size_t to) const;

  const CalledOperation called_;
  const Contexts::StatePtr state_;
  const uint64_t context_;
  Recorder& recorder_;
  const std::shared_ptr<internal::actors::ActorCell> cell_ = internal::actors::current_cell();
  const std::string name_{internal::collective::name(called_.collective)};
  size_t together_ = 1;
  Ref<Node> brought_ = {};          // has together() results for each rank; null: nothing is brought
  std::vector<Shape> shapes_ = {};  // of these, by rank
  DType dtype_ = float32;
  uint64_t use_ = 0;
  std::vector<int64_t> rows_ = {};
  std::vector<uint64_t> pairs_ = {};
};

Recorded::Recorded(CalledOperation called, Tensors& brings, Contexts::StatePtr state, uint64_t context,
                   Recorder& recorder)
    : called_(std::move(called)), state_(std::move(state)), context_(context), recorder_(recorder) {
  const Collective c = called_.collective;
  const bool has_root = c == Collective::broadcast || c == Collective::scatter;
  if (!of_all_to_all()) together_ = std::max<size_t>(brings.size(), 1);
  if (has_root && me() != called_.root) return;
  std::vector<int64_t> rows;
  if (joins(c)) rows = divided(name_, rows_of(brings[0]), called_.rows, called_.at);
  for (size_t r = 0; r < ranks(); ++r)
    for (size_t i = 0; i < together(); ++i) {
      const Tensor& x = brings[of_all_to_all() ? r : i];
      const bool whole = c == Collective::all_reduce || c == Collective::reduce || c == Collective::broadcast;
      shapes_.push_back(whole ? x.shape() : with_rows(joins(c) ? rows[r] : rows_of(x), row_of(x)));
    }
  dtype_ = brings[0].dtype();
  Edges next;
  for (const Tensor& x : brings) next.push_back(x.requires_grad() ? x.gradient_edge() : Edge());
  brought_ = make_ref<StepOfGroup>(name_ + ", brought", ranks() * together(), std::move(next),
                                   rule_of_brought(brings));
}

bool Recorded::brings_to(size_t rank) const {
  const Collective c = called_.collective;
  return brought_ && rank != me() &&
         ((c != Collective::gather && c != Collective::reduce) || rank == called_.root);
}

bool Recorded::gets_from(size_t rank) const {
  const Collective c = called_.collective;
  return (c != Collective::broadcast && c != Collective::scatter) || rank == called_.root;
}

// The gradients that come from a rank add up there.
StepOfGroup::Rule Recorded::rule_of_brought(const Tensors& brings) const {
  std::vector<Shape> shapes;
  for (const Tensor& x : brings) shapes.push_back(x.shape());
  if (joins(called_.collective))
    return [pieces = shapes_, shapes](const Tensors& grads) {
      return is_any(grads) ? Tensors{in_shape(joined(grads, pieces), shapes[0])} : Tensors(1);
    };
  return [shapes, each = of_all_to_all()](const Tensors& grads) {
    Tensors out;
    for (size_t i = 0; i < shapes.size(); ++i)
      out.push_back(in_shape(each ? grads[i] : sum_of(grads, i, shapes.size()), shapes[i]));
    return out;
  };
}

// To whom the gradients of results go: first those for rank 0.
StepOfGroup::Rule Recorded::rule_of_got(size_t results) const {
  const Collective c = called_.collective;
  if (c == Collective::gather || c == Collective::all_gather)
    return [rows = rows_](const Tensors& grads) {
      Tensors out(rows.size());
      int64_t from = 0;
      for (size_t r = 0; r < rows.size() && grads[0].defined(); from += rows[r++])
        out[r] = ops::slice(grads[0], 0, from, from + rows[r]);
      return out;
    };
  if (c == Collective::all_to_all) return [](const Tensors& grads) { return grads; };
  const size_t from = c == Collective::broadcast || c == Collective::scatter ? 1 : ranks();
  const double share = adds(c) && called_.op == ReduceOp::mean ? 1.0 / static_cast<double>(ranks()) : 1;
  return [results, from, share](Tensors grads) {
    for (Tensor& g : grads)
      if (g.defined() && share != 1) g = ops::mul(g, share);
    Tensors out;
    for (size_t r = 0; r < from; ++r) out.insert(out.end(), grads.begin(), grads.begin() + results);
    return out;
  };
}

uint64_t Recorded::pair(size_t from, size_t to) const {
  uint64_t h = splitmix64(called_.group ^ splitmix64(context_));
  for (const uint64_t x : {internal::net::method_id(called_.tag), use_, uint64_t{from}, uint64_t{to}})
    h = splitmix64(h ^ x);
  return (h & (kPairOfGroup - 1)) | kPairOfGroup;
}

Edges Recorded::of_slot(size_t rank) const {
  Edges edges;
  for (size_t i = 0; i < together(); ++i)
    edges.push_back({brought_, static_cast<uint32_t>(rank * together() + i)});
  return edges;
}

void Recorded::called(uint64_t use) {
  use_ = use;
  for (size_t r = 0; r < ranks(); ++r) {
    if (!brings_to(r)) continue;
    std::vector<std::pair<DType, Shape>> kinds;
    for (size_t i = 0; i < together(); ++i) kinds.emplace_back(dtype_, shapes_[r * together() + i]);
    pairs_.push_back(pair(me(), r));
    recorder_.add_send(*state_, pairs_.back(), called_.workers[r], of_slot(r), std::move(kinds), cell_);
  }
}

Tensors Recorded::gave(const Tensors& results) {
  const bool recorded =
      std::ranges::all_of(results, [](const Tensor& y) { return y.defined() && is_floating(y.dtype()); });
  if (results.empty() || !recorded) return results;
  Edges next;
  for (size_t r = 0; r < ranks(); ++r) {
    if (!gets_from(r)) continue;
    if (r == me()) {
      for (const Edge& edge : of_slot(r)) next.push_back(edge);
      continue;
    }
    const Ref<Node> node =
        recorder_.new_receive(*state_, context_, pair(r, me()), called_.workers[r],
                              kPairOfGroup / 2 + use_ * ranks() + r, static_cast<uint32_t>(together()));
    for (uint32_t i = 0; i < together(); ++i) next.push_back({node, i});
  }
  const Ref<Node> step =
      make_ref<StepOfGroup>(name_, results.size(), std::move(next), rule_of_got(results.size()));
  Tensors out;
  for (uint32_t i = 0; i < results.size(); ++i) {
    out.push_back(results[i].detach());
    out.back().set_grad_fn({step, i});
  }
  return out;
}

bool needs_gradient(const Tensors& xs) {
  return std::ranges::any_of(xs, [](const Tensor& x) { return x.defined() && x.requires_grad(); });
}

void lose_history(Tensors& xs) {
  for (Tensor& x : xs)
    if (x.defined() && x.requires_grad()) x = x.detach();
}

}  // namespace

std::shared_ptr<internal::collective::RecordedOperation> GroupGradients::record(CalledOperation called,
                                                                                Tensors& brings) {
  const bool needed = needs_gradient(brings);
  const std::string what(internal::collective::name(called.collective));
  // What is brought wrongly is refused by who looks at it next.
  const auto counts = [](const Tensor& x) { return x.defined() && is_floating(x.dtype()); };
  const bool takes_all = called.collective != Collective::scatter || called.at.rank == called.root;
  const uint64_t context = frame().context;
  const auto join = [&] { return contexts_.join(context, frame().call ? frame().call->from() : kNoWorker); };
  if (!grad_enabled() || (takes_all && (brings.empty() || !std::ranges::all_of(brings, counts))) ||
      (called.collective == Collective::all_to_all && brings.size() != called.at.ranks)) {
    if (context && needed) join();  // a pass that comes by mistake is told what has not been recorded
    lose_history(brings);
    return nullptr;
  }
  if (adds(called.collective) && called.op != ReduceOp::sum && called.op != ReduceOp::mean) {
    if (needed)
      throw_error(ErrorKind::unimplemented, "[" + what + "] no gradient goes through ReduceOp::" +
                                                std::string(internal::collective::name(called.op)) +
                                                ": bring x.detach(), or add with ReduceOp::sum or mean");
    return nullptr;
  }
  if (!context && needed && called.at.ranks > 1)
    throw_invalid("[" + what +
                  "] a tensor needs gradients, but no autograd::Context is active: make the call inside one, "
                  "under NoGradGuard, or bring x.detach()");
  if (!context && !needed) return nullptr;
  if (TensorStore::current())
    throw_error(
        ErrorKind::unimplemented,
        "[" + what +
            "] inside a checkpointed function it would be made again by the backward pass of one rank: "
            "use checkpoint() for what comes before and behind it");
  Contexts::StatePtr state;
  if (context && called.at.ranks > 1) {
    state = join();
    state->note_shared();
  }
  auto recorded = std::make_shared<Recorded>(std::move(called), brings, std::move(state), context, recorder_);
  lose_history(brings);
  return recorded;
}

}  // namespace troupe::autograd
