// A pass: runs the nodes that were reached as their gradients complete.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/add_gradient.h"
#include "autograd/reached.h"
#include "autograd/run_options.h"
#include "autograd/sink.h"
#include "core/base/error.h"
#include "core/graph/inplace_write.h"
#include "core/graph/partial_node.h"

namespace troupe::internal::autograd {

// What a pass for given inputs left out at a step that it ran: the gradients of the inputs with `wanted` 0.
struct LeftOut {
  Ref<Node> node;
  Tensors grads;  // of its results
  std::vector<uint8_t> wanted;
  Tensors came = {};  // those gradients, in place of `grads`: the step waited for all of them
};

// The sums, by input of `node`, that `sink` keeps of the leaves behind it and a step may add to; empty: none.
// Hooks must see each gradient by itself.
inline Tensors sums_behind(const Node& node, Sink& sink) {
  Tensors out;
  if (grad_enabled()) return out;
  for (size_t i = 0; i < node.next().size(); ++i) {
    const Edge& edge = node.next()[i];
    if (!edge || edge.node->end() != Node::End::leaf) continue;
    const Tensor leaf = static_cast<const Accumulate&>(*edge.node).leaf();
    if (edge.node->has_hooks() && !sink.hooks_later(leaf)) continue;
    if (!worth_adding_to(leaf)) continue;
    const Tensor sum = sink.sum_of(leaf);
    if (!can_add_to(sum, leaf)) continue;
    begin_write(sum, "backward (accumulation of gradients)");
    out.resize(node.next().size());
    out[i] = sum;
  }
  return out;
}

// Lets go of those of the gradients `out` that were added to a sum on the way.
inline void drop_added(const Tensors& sums, Tensors& out) {
  for (size_t i = 0; i < sums.size(); ++i)
    if (sums[i].defined() && out.at(i).is_same(sums[i])) {
      sums[i].bump_version("backward (accumulation of gradients)");
      out[i] = {};
    }
}

inline constexpr uint64_t kExits = uint64_t{1} << 63;
// A node whose gradients have all come: later steps run first, and exits before them.
struct Ready {
  uint64_t sequence;
  uint32_t task;
  bool operator<(const Ready& o) const {
    return sequence != o.sequence ? sequence < o.sequence : task > o.task;
  }
};

class Pass : public Reached {
 public:
  /// `exits`: where gradients leave, as they are discovered. Then the sink hears of each of them, also of
  /// those that no gradient reaches.
  /// `left_out`: with captures, what it leaves out, to be done later; such steps keep what they saved.
  /// `waits`: it may wait, and runs each step that does, whatever the captures.
  Pass(std::vector<Capture>* captures, std::vector<Node*>* exits, troupe::autograd::RunOptions options,
       std::vector<LeftOut>* left_out = nullptr, bool waits = false)
      : Reached(captures, exits, waits),
        left_out_(left_out),
        keep_saved_(options.retain_graph || options.create_graph) {}

  /// The gradients of roots that were expected have come: runs all that waits for nothing now. No sink:
  /// leaves get none.
  void run(const std::vector<Edge>& roots, Tensors grads, Sink* sink) {
    sink_ = sink;
    for (size_t i = 0; i < roots.size(); ++i)
      if (roots[i]) arrive(tasks_.find_or_add(roots[i].node.get()), roots[i].input, std::move(grads[i]));
    for (const Edge& root : roots)
      if (root) served(tasks_.find_or_add(root.node.get()));
    run_ready();
  }
  /// What step number `ticket` waited for has come: runs all that waits for nothing now.
  void resume(uint32_t ticket, Tensors out, Sink* sink) {
    sink_ = sink;
    --waiting_;
    bool all = true;
    if (std::vector<uint8_t> wanted; left_out_ && (wanted = wanted_inputs(tasks_[ticket], all), !all))
      left_out_->push_back({Ref<Node>(tasks_[ticket].node), {}, std::move(wanted), out});
    hand_on(ticket, std::move(out), !keep_saved_);
    run_ready();
  }
  /// Steps have begun that were not resumed.
  bool waits() const { return waiting_ != 0; }

 private:
  void arrive(uint32_t index, uint32_t result, Tensor grad) {
    ReadyNode& task = tasks_[index];
    if (!grad.defined() || !(task.below || task.captured)) return;
    if (task.grads.empty()) task.grads.resize(task.node->num_inputs());
    if (result >= task.grads.size())
      throw_invalid("[backward] " + task.node->name() + " has " + std::to_string(task.grads.size()) +
                    " results; a gradient came for result " + std::to_string(result));
    Tensor& sum = task.grads[result];
    sum = sum.defined() ? sum_gradients(std::move(sum), std::move(grad)) : std::move(grad);
  }

  void served(uint32_t index) {
    if (--tasks_[index].waits == 0) proceed(index);
  }

  void proceed(uint32_t index) {
    const ReadyNode& task = tasks_[index];
    if (!task.below && !task.captured) return;
    if (task.end == Node::End::leaf) return settle(index);
    // Exits first: what leaves is waited for elsewhere.
    const bool leaves = task.end == Node::End::exit;
    ready_.push_back({leaves ? kExits | task.node->turn() : task.node->sequence(), index});
    std::push_heap(ready_.begin(), ready_.end());
  }

  void run_ready() {
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end());
      const uint32_t next = ready_.back().task;
      ready_.pop_back();
      settle(next);
    }
  }

  // All gradients of the node are there.
  void settle(uint32_t index) {
    ReadyNode& task = tasks_[index];
    Tensors grads = std::move(task.grads);
    if (!grads.empty() && task.node->has_hooks() && !hooks_later(task)) task.node->run_hooks(grads);
    if (task.captured && !grads.empty()) capture(task.node, grads);
    if (!task.below) return;
    if (task.end == Node::End::exit) return leave(*task.node, std::move(grads));
    if (task.end == Node::End::leaf) return deliver(*static_cast<Accumulate*>(task.node), std::move(grads));
    if (task.end == Node::End::later) {
      ++waiting_;
      grads.resize(task.node->num_inputs());
      return sink_->later(*task.node, std::move(grads), index);
    }

    std::optional<Tensors> out;
    bool release = !keep_saved_;
    if (std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); }))
      out = captures_ ? apply_wanted(task, std::move(grads), release) : apply(task, std::move(grads));
    grads.clear();
    hand_on(index, std::move(out), release);
  }

  // What a step gave goes to those that wait for it; nothing: no gradient reached it.
  void hand_on(uint32_t index, std::optional<Tensors> out, bool release) {
    const ReadyNode& task = tasks_[index];
    const size_t count = task.node->next().size();
    if (out && out->size() != count)
      throw_error(ErrorKind::failed, "[backward] " + task.node->name() + " gave " +
                                         std::to_string(out->size()) + " gradients for its " +
                                         std::to_string(count) + " inputs");
    if (release) task.node->release_saved();
    for (size_t i = 0; i < count; ++i) {
      const uint32_t to = successors_[task.first_edge + i];
      if (to == kNone) continue;
      if (out) arrive(to, task.node->next()[i].input, std::move((*out)[i]));
      served(to);
    }
  }

  bool hooks_later(const ReadyNode& task) const {
    return task.end == Node::End::leaf && sink_ &&
           sink_->hooks_later(static_cast<const Accumulate&>(*task.node).leaf());
  }

  Tensors apply(const ReadyNode& task, Tensors grads) {
    const Tensors sums = sums_behind(*task.node, *sink_);
    Tensors pending = take_pending(task);
    auto* partial = sums.empty() && pending.empty() ? nullptr : dynamic_cast<PartialNode*>(task.node);
    if (!partial) sink_->sums_done();
    Tensors out = partial ? partial->apply_some(std::move(grads), {.sums = sums, .pending = pending})
                          : task.node->apply(std::move(grads));
    for (size_t i = 0; i < pending.size(); ++i)
      if (pending[i].defined()) came_for(task, i) = std::move(pending[i]);
    if (!partial) return out;
    drop_added(sums, out);
    sink_->sums_done();
    return out;
  }

  // What has come for the result that input i of the step is.
  Tensor& came_for(const ReadyNode& task, size_t i) {
    return tasks_[successors_[task.first_edge + i]].grads[task.node->next()[i].input];
  }

  // What came for its inputs is taken out, for the step to add to; empty: nothing that is worth it.
  Tensors take_pending(const ReadyNode& task) {
    Tensors out;
    if (grad_enabled()) return out;
    const size_t count = task.node->next().size();
    for (size_t i = 0; i < count; ++i) {
      const uint32_t to = successors_[task.first_edge + i];
      if (to == kNone || tasks_[to].grads.empty() || tasks_[to].end != Node::End::none) continue;
      Tensor& came = came_for(task, i);
      if (!came.defined() || !worth_adding_to(came)) continue;
      out.resize(count);
      out[i] = std::move(came);
    }
    return out;
  }

  // Only what leads to the captured nodes. What is left out is kept for later, and so is what it needs.
  Tensors apply_wanted(const ReadyNode& task, Tensors grads, bool& release) {
    bool all = true;
    const std::vector<uint8_t> wanted = wanted_inputs(task, all);
    if (all) return task.node->apply(std::move(grads));
    auto* partial = dynamic_cast<PartialNode*>(task.node);
    if (left_out_) {
      release = false;
      left_out_->push_back({Ref<Node>(task.node), grads, wanted});
    }
    return partial ? partial->apply_some(std::move(grads), {.wanted = wanted})
                   : task.node->apply(std::move(grads));
  }

  void leave(Node& node, Tensors grads) {
    if (grads.empty() && !exits_) return;
    sink_->leave(node, std::move(grads));
  }

  void capture(const Node* node, const Tensors& grads) {
    for (Capture& c : *captures_)
      if (c.edge.node.get() == node) c.grad = grads[c.edge.input];
  }

  void deliver(const Accumulate& node, Tensors grads) {
    const bool came = !grads.empty() && grads[0].defined();
    if (came) {
      const Tensor leaf = node.leaf();
      const Tensor& grad = grads[0];
      if (grad.shape() != leaf.shape() || grad.dtype() != leaf.dtype())
        throw_invalid("[backward] the gradient of a leaf " + leaf.summary() + " came out as " +
                      grad.summary() +
                      (grad.shape() == leaf.shape()
                           ? ": if its module was given another dtype since, run the forward pass again"
                           : ""));
      sink_->accumulate(leaf, grad);
      grads.clear();
    }
    if (node.has_hooks()) sink_->settled(node, came);
  }

  std::pmr::vector<Ready> ready_{&memory_};  // a heap
  Sink* sink_ = nullptr;
  std::vector<LeftOut>* left_out_;
  uint32_t waiting_ = 0;  // steps that have begun, and were not resumed
  bool keep_saved_;
};

/// "[backward] tensor 2": the beginning of a complaint about one of `count` tensors.
std::string subject_of(const char* part, size_t i, size_t count);
/// `invalid` where a pass that nothing can come to later has a step that waits.
void refuse_waiting(const char* part, Pass& pass);
std::vector<Capture> captures_of(const std::vector<Edge>& inputs);

}  // namespace troupe::internal::autograd
