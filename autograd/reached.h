// What a pass reaches: counts the edges into each node, and finds what leads to something that is wanted.
#pragma once
#include <memory_resource>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::autograd {

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

class Reached {
 public:
  /// Only what leads to the `captures`, if there are some, is wanted, and, where the pass `waits`, each step
  /// that does.
  /// `exits`: where gradients leave, as they are discovered.
  Reached(std::vector<Capture>* captures, std::vector<Node*>* exits, bool waits)
      : captures_(captures), exits_(exits), may_wait_(waits) {
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
  /// All of them.
  std::vector<const Node*> waiting_steps() {
    std::vector<const Node*> out;
    for (uint32_t i = 0; has_waiting_steps_ && i < tasks_.size(); ++i)
      if (tasks_[i].end == Node::End::later) out.push_back(tasks_[i].node);
    return out;
  }
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

 protected:
  static bool is_step(const ReadyNode& task) {
    return task.end == Node::End::none || task.end == Node::End::later;
  }

  // The inputs of a step whose gradients are wanted; `all`: those of all that have one are.
  std::vector<uint8_t> wanted_inputs(const ReadyNode& task, bool& all) {
    std::vector<uint8_t> wanted(task.node->next().size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const uint32_t to = successors_[task.first_edge + i];
      wanted[i] = to != kNone && (tasks_[to].below || tasks_[to].captured);
      all &= to == kNone || wanted[i];
    }
    return wanted;
  }

  std::byte buffer_[4096];  // tiny graphs need no heap for the book-keeping
  std::pmr::monotonic_buffer_resource memory_{buffer_, sizeof buffer_};
  Tasks tasks_{&memory_};
  std::pmr::vector<uint32_t> successors_{&memory_};  // tasks, by edge
  std::vector<Capture>* captures_;
  std::vector<Node*>* exits_;

 private:
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

  std::pmr::vector<const Accumulate*> hooked_{&memory_};
  std::vector<std::vector<uint32_t>> above_;  // tasks with an edge to each; made by the first want()
  uint32_t checked_ = 0;
  bool may_wait_;
  bool has_waiting_steps_ = false;
};

}  // namespace troupe::internal::autograd
