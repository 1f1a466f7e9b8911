// A pass: count the edges into each reachable node, then run nodes as their gradients complete.
#pragma once
#include <algorithm>
#include <memory_resource>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/add_gradient.h"
#include "autograd/engine.h"
#include "autograd/waiting_step.h"
#include "core/base/error.h"
#include "core/graph/inplace_write.h"
#include "core/graph/partial_node.h"

namespace troupe::autograd {

// A node that takes part in the pass.
struct ReadyNode {
  Node* node;               // alive: the roots hold the graph
  uint32_t first_edge = 0;  // where its successors are in Pass::successors_
  uint32_t waits = 0;       // edges into it that have not been served
  bool seen = false;        // reached by the discovery
  Node::End end = Node::End::none;
  bool captured = false;  // grad() wants the gradient of one of its results
  bool root = false;      // gradients enter here
  bool below = false;     // must run: something that is wanted lies beyond it
  Tensors grads;          // by result; empty until the first arrives
};

inline constexpr uint32_t kNone = 0xffffffff;

// Tasks by node: a search for few, a hash table for many.
class Tasks {
 public:
  explicit Tasks(std::pmr::memory_resource* memory) : tasks_(memory), table_(memory) { tasks_.reserve(kFew); }

  ReadyNode& operator[](uint32_t i) { return tasks_[i]; }
  uint32_t size() const { return static_cast<uint32_t>(tasks_.size()); }
  uint32_t find_or_add(Node* node) {
    if (table_.empty()) {
      for (uint32_t i = 0; i < tasks_.size(); ++i)
        if (tasks_[i].node == node) return i;
      if (tasks_.size() < kFew) return add(node);
      rehash(kFirstTable);
    } else if (2 * tasks_.size() >= table_.size()) {
      rehash(4 * table_.size());
    }
    uint32_t& entry = table_[slot(node)];
    if (entry == kNone) entry = add(node);
    return entry;
  }

 private:
  static constexpr size_t kFew = 24, kFirstTable = 256;

  uint32_t add(Node* node) {
    tasks_.push_back({.node = node});
    return static_cast<uint32_t>(tasks_.size() - 1);
  }
  size_t slot(Node* node) const {  // where it is, or would be
    size_t at = (reinterpret_cast<uintptr_t>(node) >> 4) * 0x9e3779b97f4a7c15 >> 20;
    for (;; ++at) {
      at &= table_.size() - 1;
      if (table_[at] == kNone || tasks_[table_[at]].node == node) return at;
    }
  }
  void rehash(size_t size) {  // a power of two
    table_.assign(size, kNone);
    for (uint32_t i = 0; i < tasks_.size(); ++i) table_[slot(tasks_[i].node)] = i;
  }

  std::pmr::vector<ReadyNode> tasks_;
  std::pmr::vector<uint32_t> table_;
};

// A gradient that grad() asks for: of result `result` of a node.
struct Capture {
  Edge edge;
  Tensor grad;
};

// What a pass for given inputs left out at a step that it ran: the gradients of the inputs with `wanted` 0.
struct LeftOut {
  Ref<Node> node;
  Tensors grads;  // of its results
  std::vector<uint8_t> wanted;
};

// The sums, by input of `node`, that `sink` keeps of the leaves behind it and a step may add to; empty: none.
// Hooks must see each gradient by itself.
inline Tensors sums_behind(const Node& node, Sink& sink) {
  Tensors out;
  if (grad_enabled()) return out;
  for (size_t i = 0; i < node.next().size(); ++i) {
    const Edge& edge = node.next()[i];
    if (!edge || edge.node->end() != Node::End::leaf || edge.node->has_hooks()) continue;
    const Tensor leaf = static_cast<const Accumulate&>(*edge.node).leaf();
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

class Pass {
 public:
  /// `exits`: where gradients leave, as they are discovered. Then the sink hears of each of them, also of
  /// those that no gradient reaches.
  /// `left_out`: with captures, what it leaves out, to be done later; such steps keep what they saved.
  /// `waits`: it may wait, and runs each step that does, whatever the captures.
  Pass(std::vector<Capture>* captures, std::vector<Node*>* exits, RunOptions options,
       std::vector<LeftOut>* left_out = nullptr, bool waits = false)
      : captures_(captures),
        exits_(exits),
        left_out_(left_out),
        keep_saved_(options.retain_graph || options.create_graph),
        may_wait_(waits) {
    if (captures_)
      for (const Capture& c : *captures_) tasks_[tasks_.find_or_add(c.edge.node.get())].captured = true;
  }

  /// Gradients will come for `root`: what is behind it waits for them.
  void expect(const Edge& root) {
    if (!root) return;
    above_.clear();
    discover(root.node.get());
    ReadyNode& task = tasks_[tasks_.find_or_add(root.node.get())];
    task.root = true;
    ++task.waits;
  }
  /// Everything that will run still has what it saved; throws before anything has run.
  void check() {
    for (; checked_ < tasks_.size(); ++checked_) {
      const ReadyNode& task = tasks_[checked_];
      if (task.below && task.seen && is_step(task)) task.node->check_saved();
    }
  }
  /// A step that waits, among those that will run; null: none.
  const Node* waiting_step() {
    for (uint32_t i = 0; has_waiting_steps_ && i < tasks_.size(); ++i)
      if (tasks_[i].end == Node::End::later && tasks_[i].below) return tasks_[i].node;
    return nullptr;
  }
  /// Such a step was reached, wanted or not.
  bool has_waiting_steps() const { return has_waiting_steps_; }
  /// The leaves with hooks that were reached.
  const std::pmr::vector<const Accumulate*>& hooked() const { return hooked_; }
  /// Whether something that is wanted lies at `root`, which was expected, or beyond.
  bool leads_on(const Edge& root) {
    const ReadyNode& task = tasks_[tasks_.find_or_add(root.node.get())];
    return task.below || task.captured;
  }
  /// Roots that lead to a captured node.
  std::vector<Node*> wanted() {
    check();
    std::vector<Node*> out;
    for (uint32_t i = 0; i < tasks_.size(); ++i)
      if (tasks_[i].root && (tasks_[i].below || tasks_[i].captured)) out.push_back(tasks_[i].node);
    return out;
  }
  /// What leads to `exit` must run. Returns the roots among the nodes that this adds.
  std::vector<Node*> want(Node* exit) {
    if (above_.empty()) find_above();
    std::vector<Node*> out;
    std::pmr::vector<uint32_t> open({tasks_.find_or_add(exit)}, &memory_);
    if (!tasks_[open[0]].seen) throw_invalid("[grad] " + exit->name() + " is not part of this pass");
    while (!open.empty()) {
      ReadyNode& task = tasks_[open.back()];
      open.pop_back();
      if (task.below) continue;
      task.below = true;
      if (is_step(task)) task.node->check_saved();
      if (task.root && !task.captured) out.push_back(task.node);
      const auto& above = above_[tasks_.find_or_add(task.node)];
      open.insert(open.end(), above.begin(), above.end());
    }
    return out;
  }
  /// Whether gradients that leave at `exit` may come back to `node`: no, if what leads to the exit was
  /// computed from it.
  bool may_lead_back(const Node* exit, Node* node) {
    std::vector<Node*> open{node};
    std::set<const Node*> seen;
    while (!open.empty()) {
      Node* at = open.back();
      open.pop_back();
      if (at == exit) return false;
      if (!seen.insert(at).second) continue;
      for (const Edge& edge : at->next())
        if (edge) open.push_back(edge.node.get());
    }
    return true;
  }
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
    hand_on(ticket, std::move(out), !keep_saved_);
    run_ready();
  }
  /// Steps have begun that were not resumed.
  bool waits() const { return waiting_ != 0; }

 private:
  static constexpr uint64_t kExits = uint64_t{1} << 63;
  struct Ready {
    uint64_t sequence;
    uint32_t task;
    bool operator<(const Ready& o) const {
      return sequence != o.sequence ? sequence < o.sequence : task > o.task;
    }
  };

  // Depth first without recursion: counts edges, and finds what lies above a captured node.
  void discover(Node* root) {
    struct Frame {
      uint32_t task, next;
    };
    const uint32_t first = tasks_.find_or_add(root);
    if (tasks_[first].seen) return;
    std::pmr::vector<Frame> stack(&memory_);
    visit(first);
    stack.push_back({first, 0});
    while (!stack.empty()) {
      auto& [at, i] = stack.back();
      const auto& next = tasks_[at].node->next();
      if (i == next.size()) {
        const bool wanted = tasks_[at].below || tasks_[at].captured;
        stack.pop_back();
        if (!stack.empty() && wanted) tasks_[stack.back().task].below = true;
        continue;
      }
      const Edge& edge = next[i++];
      if (!edge) continue;
      const uint32_t to = tasks_.find_or_add(edge.node.get());
      successors_[tasks_[at].first_edge + i - 1] = to;
      ++tasks_[to].waits;
      if (!tasks_[to].seen) {
        visit(to);
        stack.push_back({to, 0});
      } else if (tasks_[to].below || tasks_[to].captured) {
        tasks_[at].below = true;
      }
    }
  }

  void visit(uint32_t index) {
    ReadyNode& task = tasks_[index];
    task.seen = true;
    task.end = task.node->end();
    const bool waits = task.end == Node::End::later;
    task.below = !captures_ || (waits && may_wait_);
    has_waiting_steps_ |= waits;
    if (exits_ && task.end == Node::End::exit) exits_->push_back(task.node);
    if (task.end == Node::End::leaf && task.node->has_hooks())
      hooked_.push_back(static_cast<const Accumulate*>(task.node));
    task.first_edge = static_cast<uint32_t>(successors_.size());
    successors_.resize(successors_.size() + task.node->next().size(), kNone);
  }

  void find_above() {
    above_.resize(tasks_.size());
    for (uint32_t i = 0; i < tasks_.size(); ++i)
      if (tasks_[i].seen)
        for (size_t k = 0; k < tasks_[i].node->next().size(); ++k)
          if (const uint32_t to = successors_[tasks_[i].first_edge + k]; to != kNone) above_[to].push_back(i);
  }

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

  static bool is_step(const ReadyNode& task) {
    return task.end == Node::End::none || task.end == Node::End::later;
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
    std::vector<uint8_t> wanted(task.node->next().size());
    bool all = true;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const uint32_t to = successors_[task.first_edge + i];
      wanted[i] = to != kNone && (tasks_[to].below || tasks_[to].captured);
      all &= to == kNone || wanted[i];
    }
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

  std::byte buffer_[4096];  // tiny graphs need no heap for the book-keeping
  std::pmr::monotonic_buffer_resource memory_{buffer_, sizeof buffer_};
  Tasks tasks_{&memory_};
  std::pmr::vector<uint32_t> successors_{&memory_};  // tasks, by edge
  std::pmr::vector<Ready> ready_{&memory_};          // a heap
  Sink* sink_ = nullptr;
  std::vector<Capture>* captures_;
  std::vector<Node*>* exits_;
  std::vector<LeftOut>* left_out_;
  std::pmr::vector<const Accumulate*> hooked_{&memory_};
  std::vector<std::vector<uint32_t>> above_;  // tasks with an edge to each; made by the first want()
  uint32_t checked_ = 0;
  uint32_t waiting_ = 0;  // steps that have begun, and were not resumed
  bool keep_saved_, may_wait_;
  bool has_waiting_steps_ = false;
};

}  // namespace troupe::autograd
