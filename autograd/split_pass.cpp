#include "autograd/split_pass.h"

#include <optional>

#include "autograd/pass.h"

namespace troupe::internal::autograd {

struct SplitPass::Impl {
  Tensors root_tensors;  // hold the graph
  std::vector<Edge> roots;
  std::vector<Capture> captures;
  std::vector<Node*> exits;
  bool has_waiting_steps = false;
  std::vector<LeftOut> left_out;
  std::vector<Edge> aside;  // roots that lead to no input
  Tensors aside_grads;
  std::optional<Pass> pass;  // the first part
};

SplitPass::SplitPass(const Tensors& roots, const Tensors& inputs) : impl_(std::make_unique<Impl>()) {
  impl_->root_tensors = roots;
  impl_->roots = root_edges("backward", roots);
  if (!inputs.empty())
    for (Edge& edge : input_edges("backward", inputs)) impl_->captures.push_back({std::move(edge), {}});
  impl_->pass.emplace(&impl_->captures, &impl_->exits, troupe::autograd::RunOptions{}, &impl_->left_out);
  for (const Edge& root : impl_->roots) impl_->pass->expect(root);
  impl_->has_waiting_steps = impl_->pass->has_waiting_steps();
}

SplitPass::~SplitPass() = default;

bool SplitPass::leaves_actor() const { return !impl_->exits.empty() || impl_->has_waiting_steps; }

Tensors SplitPass::inputs(const Tensors& grads) {
  Impl& it = *impl_;
  if (it.roots.empty()) throw_invalid("[backward] the first part of this pass was already run");
  if (leaves_actor())
    throw_invalid(
        "[backward] the graph goes on in another actor, or has a step that waits for others, which a pass in "
        "two parts cannot do: use the backward() of the autograd::Context that it was recorded in");
  Tensors entering = root_grads("backward", it.root_tensors, grads, false);
  GradMode off(false);
  Pass& pass = *it.pass;
  pass.check();
  for (size_t i = 0; i < it.roots.size(); ++i)
    if (!pass.leads_on(it.roots[i])) {
      it.aside.push_back(it.roots[i]);
      it.aside_grads.push_back(entering[i]);
    }
  pass.run(std::exchange(it.roots, {}), std::move(entering), nullptr);
  it.pass.reset();
  it.root_tensors.clear();
  Tensors out;
  for (Capture& c : it.captures) out.push_back(std::move(c.grad));
  return out;
}

void SplitPass::rest(Sink& sink) {
  Impl& it = *impl_;
  GradMode off(false);
  std::vector<Edge> edges = std::exchange(it.aside, {});
  Tensors grads = std::exchange(it.aside_grads, {});
  for (LeftOut& left : it.left_out) {
    std::vector<uint8_t> others(left.wanted.size());
    for (size_t i = 0; i < others.size(); ++i) others[i] = !left.wanted[i];
    auto* partial = dynamic_cast<PartialNode*>(left.node.get());
    const Tensors sums = sums_behind(*left.node, sink);
    Tensors out = partial ? partial->apply_some(std::move(left.grads), {.wanted = others, .sums = sums})
                          : left.node->apply(std::move(left.grads));
    left.grads.clear();
    drop_added(sums, out);
    sink.sums_done();
    for (size_t i = 0; i < others.size(); ++i)
      if (const Edge& edge = left.node->next()[i]; edge && others[i]) {
        edges.push_back(edge);
        grads.push_back(std::move(out.at(i)));
      }
    left.node->release_saved();
  }
  it.left_out.clear();
  run(edges, std::move(grads), sink);
}

}  // namespace troupe::internal::autograd
