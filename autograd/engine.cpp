// The entries of programs: passes over whole graphs, and gradients of given inputs.
#include "autograd/engine.h"

#include <mutex>
#include <string>

#include "autograd/add_gradient.h"
#include "autograd/gradient_cycle.h"
#include "autograd/leaf_watch.h"
#include "autograd/pass.h"
#include "autograd/region.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/mutex.h"

namespace troupe::internal::autograd {
namespace {

// The history of such a gradient leads back to the leaf: the two hold each other.
void warn_of_cycle(const Tensor& leaf) {
  if (troupe::autograd::gradient_cycle_told().exchange(true)) return;
  log::warning("[backward] create_graph gave a leaf (" + leaf.summary() +
               ") a .grad with a history, which holds the leaf: neither is freed until zero_grad(). "
               "autograd::grad() gives such gradients and touches no .grad. (This is said once.)");
}

// Adds to `.grad`, as threads that share leaves may do at a time. Leaves share a few locks, and a step may
// come back here by a pass of its own.
class GradSink final : public Sink {
 public:
  HookBatch round;
  void settled(const Accumulate& leaf, bool came) override {
    if (!is_watched(leaf)) return;
    std::function<Tensor()> total;
    if (came) total = [&] { return sum_now(leaf.leaf()); };
    round.settled(leaf, total);
  }
  void accumulate(const Tensor& leaf, const Tensor& grad) override {
    const Lock lock(mutex_of(leaf));
    Tensor kept = leaf.grad();
    add_gradient(kept, grad);
    if (kept.requires_grad()) warn_of_cycle(leaf);
    leaf.set_grad(std::move(kept));
  }
  // Waits for nobody: a step may ask for several.
  Tensor sum_of(const Tensor& leaf) override {
    Lock lock(mutex_of(leaf), std::try_to_lock);
    if (!lock) return {};
    held_.push_back(std::move(lock));
    return leaf.grad();
  }
  void sums_done() override { held_.clear(); }

 private:
  using Lock = std::unique_lock<RecursiveMutex>;
  static RecursiveMutex& mutex_of(const Tensor& leaf) {
    static RecursiveMutex all[64];
    return all[(reinterpret_cast<uintptr_t>(leaf.impl()) >> 6) % std::size(all)];
  }
  static Tensor sum_now(const Tensor& leaf) {
    const Lock lock(mutex_of(leaf));
    return leaf.grad();
  }
  std::vector<Lock> held_;
};

}  // namespace
}  // namespace troupe::internal::autograd

namespace troupe::autograd {

std::atomic<bool>& gradient_cycle_told() {
  static std::atomic<bool> told{false};
  return told;
}

void backward(const Tensor& root, const Tensor& grad, RunOptions options) {
  backward(Tensors{root}, grad.defined() ? Tensors{grad} : Tensors{}, options);
}

void backward(const Tensors& roots, const Tensors& grads, RunOptions options) {
  using namespace internal::autograd;
  const std::vector<Edge> edges = root_edges("backward", roots);
  Tensors entering = root_grads("backward", roots, grads, options.create_graph);
  GradMode mode(options.create_graph);
  std::vector<Node*> exits;
  Pass pass(nullptr, &exits, options);
  for (const Edge& edge : edges) pass.expect(edge);
  GradSink sink;
  for (Node* exit : exits) sink.leave(*exit, {});  // throws
  refuse_waiting("backward", pass);
  for (const Accumulate* leaf : pass.hooked())
    if (has_waiting_hook(*leaf))
      throw_invalid(
          "[backward] a leaf (" + leaf->leaf().summary() +
          ") has a ready hook that may wait, which a local pass cannot do: use the backward() of an "
          "autograd::Context");
  pass.check();
  pass.run(edges, std::move(entering), &sink);
  (void)sink.round.finish();
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs, RunOptions options) {
  using namespace internal::autograd;
  const std::vector<Edge> edges = root_edges("grad", outputs);
  std::vector<Capture> captures = captures_of(input_edges("grad", inputs));
  Tensors grads = root_grads("grad", outputs, grad_outputs, options.create_graph);
  GradMode mode(options.create_graph);
  std::vector<Node*> exits;
  Pass pass(&captures, &exits, options);
  for (const Edge& edge : edges) pass.expect(edge);
  for (const Node* exit : exits)
    for (size_t i = 0; i < inputs.size(); ++i)
      if (pass.may_lead_back(exit, captures[i].edge.node.get()))
        throw_invalid(subject_of("grad", i, inputs.size()) + " (" + inputs[i].summary() +
                      ") may lie behind a call to another actor, where a local grad() cannot go: use the "
                      "grad() of the autograd::Context that the calls were made in, or detach() what they "
                      "gave");
  refuse_waiting("grad", pass);
  pass.check();
  pass.run(edges, std::move(grads), nullptr);
  Tensors out;
  for (Capture& c : captures) out.push_back(std::move(c.grad));
  return out;
}

}  // namespace troupe::autograd
