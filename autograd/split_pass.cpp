#include "autograd/split_pass.h"

#include <optional>

#include "autograd/pass.h"
#include "autograd/waiting_step.h"

namespace troupe::internal::autograd {

struct SplitPass::Impl {
  Tensors root_tensors;  // hold the graph
  std::vector<Edge> roots;
  std::shared_ptr<std::vector<LeftOut>> left_out = std::make_shared<std::vector<LeftOut>>();
  std::optional<Region> region;  // the first part
  bool leaves = false, waits = false;
  std::vector<Edge> aside;  // roots that lead to no input
  Tensors aside_grads;
};

SplitPass::SplitPass(const Tensors& roots, const Tensors& inputs) : impl_(std::make_unique<Impl>()) {
  Impl& it = *impl_;
  it.root_tensors = roots;
  it.roots = root_edges("backward", roots);
  it.region.emplace(troupe::autograd::RunOptions{},
                    inputs.empty() ? std::vector<Edge>() : input_edges("backward", inputs), it.left_out);
  it.leaves = !it.region->expect(it.roots).empty();
  for (const Node* step : it.region->waiting_steps()) {
    it.waits = true;
    it.leaves |= !dynamic_cast<const WaitingRule&>(*step).leaves_for_later();
  }
}

SplitPass::~SplitPass() = default;

bool SplitPass::leaves_actor() const { return impl_->leaves; }
bool SplitPass::waits() const { return impl_->waits; }

SplitPass::FirstPart SplitPass::begin(const Tensors& grads) {
  Impl& it = *impl_;
  if (!it.region) throw_invalid("[backward] the first part of this pass was already run");
  if (it.leaves)
    throw_invalid(
        "[backward] the graph goes on in another actor, or ends something there, which a pass in two parts "
        "cannot do: use the backward() of the autograd::Context that it was recorded in");
  Tensors entering = root_grads("backward", it.root_tensors, grads, false);
  it.region->check();
  for (size_t i = 0; i < it.roots.size(); ++i)
    if (!it.region->leads_on(it.roots[i])) {
      it.aside.push_back(it.roots[i]);
      it.aside_grads.push_back(entering[i]);
    }
  FirstPart part{std::move(*it.region), std::exchange(it.roots, {}), std::move(entering)};
  it.region.reset();
  it.root_tensors.clear();
  return part;
}

Tensors SplitPass::inputs(const Tensors& grads) {
  if (impl_->waits)
    throw_invalid(
        "[backward] the graph has a step that waits for others, which a pass of one actor cannot do: use the "
        "backward() of the autograd::Context that it was recorded in");
  FirstPart part = begin(grads);
  struct None final : Sink {
    void accumulate(const Tensor&, const Tensor&) override {}
  } none;
  part.region.supply(part.roots, std::move(part.grads), none);
  return part.region.captured();
}

void SplitPass::rest(Sink& sink) {
  Impl& it = *impl_;
  GradMode off(false);
  std::vector<Edge> edges = std::exchange(it.aside, {});
  Tensors grads = std::exchange(it.aside_grads, {});
  for (LeftOut& left : *it.left_out) {
    std::vector<uint8_t> others(left.wanted.size());
    for (size_t i = 0; i < others.size(); ++i) others[i] = !left.wanted[i];
    Tensors out = std::move(left.came);
    if (out.empty()) {
      auto* partial = dynamic_cast<PartialNode*>(left.node.get());
      const Tensors sums = sums_behind(*left.node, sink);
      out = partial ? partial->apply_some(std::move(left.grads), {.wanted = others, .sums = sums})
                    : left.node->apply(std::move(left.grads));
      left.grads.clear();
      drop_added(sums, out);
      sink.sums_done();
      left.node->release_saved();
    }
    for (size_t i = 0; i < others.size(); ++i)
      if (const Edge& edge = left.node->next()[i]; edge && others[i]) {
        edges.push_back(edge);
        grads.push_back(std::move(out.at(i)));
      }
  }
  it.left_out->clear();
  run(edges, std::move(grads), sink);
}

}  // namespace troupe::internal::autograd
