// A pass: count the edges into each reachable node, then run nodes as their gradients complete.
#include "autograd/engine.h"

#include <algorithm>
#include <memory_resource>
#include <set>

#include "autograd/accumulate.h"
#include "autograd/watch.h"
#include "core/error.h"

namespace troupe::autograd {
namespace {

// A node that takes part in the pass.
struct Task {
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

constexpr uint32_t kNone = 0xffffffff;

// Tasks by node: a search for few, a hash table for many.
class Tasks {
 public:
  explicit Tasks(std::pmr::memory_resource* memory) : tasks_(memory), table_(memory) { tasks_.reserve(kFew); }

  Task& operator[](uint32_t i) { return tasks_[i]; }
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

  std::pmr::vector<Task> tasks_;
  std::pmr::vector<uint32_t> table_;
};

// A gradient that grad() asks for: of result `result` of a node.
struct Capture {
  Edge edge;
  Tensor grad;
};

class Pass {
 public:
  /// `exits`: where gradients leave, as they are discovered. Then the sink hears of each of them, also of
  /// those that no gradient reaches.
  Pass(std::vector<Capture>* captures, std::vector<Node*>* exits, RunOptions options)
      : captures_(captures), exits_(exits), keep_saved_(options.retain_graph || options.create_graph) {
    if (captures_)
      for (const Capture& c : *captures_) tasks_[tasks_.find_or_add(c.edge.node.get())].captured = true;
  }

  /// Gradients will come for `root`: what is behind it waits for them.
  void expect(const Edge& root) {
    if (!root) return;
    above_.clear();
    discover(root.node.get());
    Task& task = tasks_[tasks_.find_or_add(root.node.get())];
    task.root = true;
    ++task.waits;
  }
  /// Everything that will run still has what it saved; throws before anything has run.
  void check() {
    for (; checked_ < tasks_.size(); ++checked_) {
      const Task& task = tasks_[checked_];
      if (task.below && task.seen && task.end == Node::End::none) task.node->check_saved();
    }
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
      Task& task = tasks_[open.back()];
      open.pop_back();
      if (task.below) continue;
      task.below = true;
      if (task.end == Node::End::none) task.node->check_saved();
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
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end());
      const uint32_t next = ready_.back().task;
      ready_.pop_back();
      settle(next);
    }
  }

 private:
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
    Task& task = tasks_[index];
    task.seen = true;
    task.below = !captures_;
    task.end = task.node->end();
    if (exits_ && task.end == Node::End::exit) exits_->push_back(task.node);
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
    Task& task = tasks_[index];
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
    const Task& task = tasks_[index];
    if (!task.below && !task.captured) return;
    if (task.end == Node::End::leaf) return settle(index);
    ready_.push_back({task.node->sequence(), index});
    std::push_heap(ready_.begin(), ready_.end());
  }

  // All gradients of the node are there.
  void settle(uint32_t index) {
    Task& task = tasks_[index];
    Tensors grads = std::move(task.grads);
    if (!grads.empty()) task.node->run_hooks(grads);
    if (task.captured && !grads.empty()) capture(task.node, grads);
    if (!task.below) return;
    if (task.end == Node::End::exit) return leave(*task.node, std::move(grads));
    if (task.end == Node::End::leaf) return deliver(*static_cast<Accumulate*>(task.node), std::move(grads));

    const size_t count = task.node->next().size();
    Tensors out;
    const bool reached = std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); });
    if (reached) {
      out = task.node->apply(std::move(grads));
      if (out.size() != count)
        throw_error(ErrorKind::failed, "[backward] " + task.node->name() + " gave " +
                                           std::to_string(out.size()) + " gradients for its " +
                                           std::to_string(count) + " inputs");
    }
    grads.clear();
    if (!keep_saved_) task.node->release_saved();
    for (size_t i = 0; i < count; ++i) {
      const uint32_t to = successors_[task.first_edge + i];
      if (to == kNone) continue;
      if (reached) arrive(to, task.node->next()[i].input, std::move(out[i]));
      served(to);
    }
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
        throw_invalid("[backward] the gradient of a leaf " + leaf.str() + " came out as " + grad.str());
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
  std::vector<std::vector<uint32_t>> above_;  // tasks with an edge to each; made by the first want()
  uint32_t checked_ = 0;
  bool keep_saved_;
};

std::vector<Capture> captures_of(const std::vector<Edge>& inputs) {
  std::vector<Capture> out;
  for (const Edge& edge : inputs) out.push_back({edge, {}});
  return out;
}

class GradSink final : public Sink {
 public:
  WatchRound round;
  void settled(const Accumulate& leaf, bool came) override {
    if (is_watched(leaf)) round.settled(leaf, came ? leaf.leaf().grad() : Tensor());
  }
  void accumulate(const Tensor& leaf, const Tensor& grad) override {
    Tensor kept = leaf.grad();
    add_gradient(kept, grad);
    leaf.set_grad(std::move(kept));
  }
};

// "[backward] tensor 2": the beginning of a complaint about one of `count` tensors.
std::string subject(const char* part, size_t i, size_t count) {
  return "[" + std::string(part) + "] " + (count == 1 ? "the tensor" : "tensor " + std::to_string(i));
}

}  // namespace

std::vector<Edge> root_edges(const char* part, const Tensors& roots) {
  if (roots.empty()) throw_invalid("[" + std::string(part) + "] the list of tensors is empty");
  std::vector<Edge> edges;
  edges.reserve(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].defined()) throw_invalid(subject(part, i, roots.size()) + " is undefined");
    Edge edge = roots[i].gradient_edge();
    if (!edge)
      throw_invalid(
          subject(part, i, roots.size()) + " (" + roots[i].str() +
          ") needs no gradient: nothing that it was computed from has requires_grad, or it was computed "
          "while grad mode was off. The result of a remote call has a history only if the call was made "
          "inside an autograd context");
    edges.push_back(std::move(edge));
  }
  return edges;
}

Tensors root_grads(const char* part, const Tensors& roots, const Tensors& grads, bool keep_history) {
  if (!grads.empty() && grads.size() != roots.size())
    throw_invalid("[" + std::string(part) + "] " + std::to_string(grads.size()) + " gradients for " +
                  std::to_string(roots.size()) + " tensors");
  Tensors out;
  out.reserve(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    if (grads.empty() || !grads[i].defined()) {
      if (root.numel() != 1)
        throw_invalid(subject(part, i, roots.size()) + " has shape " + root.shape().str() +
                      ": give its gradient, or reduce it to one element first");
      out.push_back(Tensor::full(root.shape(), 1, root.dtype()));
      continue;
    }
    const Tensor& grad = grads[i];
    if (grad.shape() != root.shape() || grad.dtype() != root.dtype() || grad.device() != root.device())
      throw_invalid(subject(part, i, roots.size()) + " (" + root.str() + " on " + root.device().str() +
                    ") cannot have the gradient " + grad.str() + " on " + grad.device().str());
    out.push_back(!keep_history && grad.requires_grad() ? grad.detach() : grad);
  }
  return out;
}

void Sink::leave(Node& node, Tensors) {
  throw_invalid("[backward] the graph goes on in another actor (" + node.name() +
                "): a local backward() ends here, use the backward() of the autograd::Context that the calls "
                "were made in");
}

void run(const std::vector<Edge>& roots, Tensors grads, Sink& sink, RunOptions options) {
  if (roots.size() != grads.size())
    throw_invalid("[backward] " + std::to_string(grads.size()) + " gradients for " +
                  std::to_string(roots.size()) + " roots");
  GradMode mode(options.create_graph);
  Pass pass(nullptr, nullptr, options);
  for (const Edge& root : roots) pass.expect(root);
  pass.check();
  pass.run(roots, std::move(grads), &sink);
}

struct Region::Impl {
  std::vector<Edge> roots;  // hold the graph
  std::vector<Node*> exits;
  std::vector<Capture> captures;
  const bool selects;
  Pass pass;
  size_t expected = 0;
  explicit Impl(RunOptions options) : selects(false), pass(nullptr, &exits, options) {}
  Impl(RunOptions options, std::vector<Capture> inputs)
      : captures(std::move(inputs)), selects(true), pass(&captures, &exits, options) {}
};

Region::Region(RunOptions options) : impl_(std::make_unique<Impl>(options)) {}
Region::Region(RunOptions options, const std::vector<Edge>& inputs)
    : impl_(std::make_unique<Impl>(options, captures_of(inputs))) {}
Region::~Region() = default;

std::vector<Node*> Region::expect(const std::vector<Edge>& roots) {
  for (const Edge& root : roots) impl_->pass.expect(root);
  if (!impl_->selects) impl_->pass.check();
  impl_->roots.insert(impl_->roots.end(), roots.begin(), roots.end());
  impl_->expected += roots.size();
  return std::exchange(impl_->exits, {});
}

void Region::supply(const std::vector<Edge>& roots, Tensors grads, Sink& sink) {
  if (roots.size() > impl_->expected)
    throw_invalid("[backward] gradients came for a root that none were expected for");
  impl_->expected -= roots.size();
  GradMode mode(false);
  impl_->pass.run(roots, std::move(grads), &sink);
}

bool Region::done() const { return impl_->expected == 0; }
std::vector<Node*> Region::wanted() { return impl_->pass.wanted(); }
std::vector<Node*> Region::want(Node* exit) { return impl_->pass.want(exit); }

Tensors Region::captured() const {
  Tensors out;
  for (const Capture& c : impl_->captures) out.push_back(c.grad);
  return out;
}

void backward(const Tensor& root, const Tensor& grad, RunOptions options) {
  backward(Tensors{root}, grad.defined() ? Tensors{grad} : Tensors{}, options);
}

void backward(const Tensors& roots, const Tensors& grads, RunOptions options) {
  const std::vector<Edge> edges = root_edges("backward", roots);
  Tensors entering = root_grads("backward", roots, grads, options.create_graph);
  GradMode mode(options.create_graph);
  std::vector<Node*> exits;
  Pass pass(nullptr, &exits, options);
  for (const Edge& edge : edges) pass.expect(edge);
  GradSink sink;
  for (Node* exit : exits) sink.leave(*exit, {});  // throws
  pass.check();
  pass.run(edges, std::move(entering), &sink);
  sink.round.finish();
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs, RunOptions options) {
  const std::vector<Edge> edges = root_edges("grad", outputs);
  std::vector<Capture> captures = captures_of(root_edges("grad", inputs));
  Tensors grads = root_grads("grad", outputs, grad_outputs, options.create_graph);
  GradMode mode(options.create_graph);
  std::vector<Node*> exits;
  Pass pass(&captures, &exits, options);
  for (const Edge& edge : edges) pass.expect(edge);
  for (const Node* exit : exits)
    for (size_t i = 0; i < inputs.size(); ++i)
      if (pass.may_lead_back(exit, captures[i].edge.node.get()))
        throw_invalid(subject("grad", i, inputs.size()) + " (" + inputs[i].str() +
                      ") may lie behind a call to another actor, where a local grad() cannot go: use the "
                      "grad() of the autograd::Context that the calls were made in, or detach() what they "
                      "gave");
  pass.check();
  pass.run(edges, std::move(grads), nullptr);
  Tensors out;
  for (Capture& c : captures) out.push_back(std::move(c.grad));
  return out;
}

}  // namespace troupe::autograd
