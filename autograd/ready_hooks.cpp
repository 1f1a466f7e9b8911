#include "autograd/ready_hooks.h"

#include <unordered_map>
#include <utility>

#include "core/base/error.h"

namespace troupe::autograd {
namespace {

// Who watches which leaves. Beside the nodes, of which hardly any is watched; whoever registers keeps them
// alive.
class Table {
 public:
  using Watched = std::pair<std::shared_ptr<LeafWatch>, size_t>;  // the set, and the leaf's number in it
  void add(const Node* leaf, Watched w) {
    internal::Lock lock(mutex_);
    table_[leaf].push_back(std::move(w));
  }
  void remove(const Node* leaf, const LeafWatch* watch) {
    internal::Lock lock(mutex_);
    auto at = table_.find(leaf);
    if (at == table_.end()) return;
    std::erase_if(at->second, [&](const Watched& w) { return w.first.get() == watch; });
    if (at->second.empty()) table_.erase(at);
  }
  std::vector<Watched> find(const Node* leaf) {
    internal::Lock lock(mutex_);
    auto at = table_.find(leaf);
    return at == table_.end() ? std::vector<Watched>() : at->second;
  }

 private:
  internal::Mutex mutex_;
  std::unordered_map<const Node*, std::vector<Watched>> table_ TROUPE_GUARDED_BY(mutex_);
};

Table& table() {
  static auto* t = new Table;  // hooks may outlive everything
  return *t;
}

}  // namespace

bool is_watched(const Accumulate& leaf) { return !table().find(&leaf).empty(); }

bool has_waiting_hook(const Accumulate& leaf) {
  for (const auto& [watch, index] : table().find(&leaf))
    if (watch->may_wait()) return true;
  return false;
}

// The table has it for each of its leaves; empty once removed.
class WatchHandle::Set final : public LeafWatch {
 public:
  Set(Told f, size_t count, bool without, bool may_wait)
      : function_(std::make_shared<Told>(std::move(f))),
        count_(count),
        without_(without),
        may_wait_(may_wait) {}
  Future<void> told(size_t index, const Tensor& total, const std::shared_ptr<PassGradients>& pass) override {
    const auto function = function_;  // survives a remove() from inside
    return function && (without_ || total.defined()) ? (*function)(index, total, pass) : Future<void>();
  }
  bool may_wait() const override { return may_wait_; }
  size_t count() const override { return count_; }
  void remove() { function_.reset(); }

 private:
  std::shared_ptr<Told> function_;
  size_t count_;
  bool without_;  // call it without a gradient, too
  bool may_wait_;
};

WatchHandle& WatchHandle::operator=(WatchHandle&& o) noexcept {
  if (this == &o) return *this;
  remove();
  edges_ = std::move(o.edges_);
  set_ = std::move(o.set_);
  return *this;
}

void WatchHandle::remove() {
  if (set_) {
    for (const Edge& edge : edges_) table().remove(edge.node.get(), set_.get());
    set_->remove();
  }
  set_.reset();
  edges_.clear();
}

WatchHandle WatchHandle::watch(const char* what, const Tensors& leaves, Told hook, bool without,
                               bool may_wait) {
  const std::string part = "[" + std::string(what) + "] ";
  if (!hook) throw_invalid(part + "the function is empty");
  if (leaves.empty()) throw_invalid(part + "the list of tensors is empty");
  WatchHandle handle;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor& leaf = leaves[i];
    if (!leaf.defined()) throw_invalid(part + "tensor " + std::to_string(i) + " is undefined");
    if (!leaf.is_leaf() || !is_floating(leaf.dtype()) || (!leaf.requires_grad() && !may_wait))
      throw_invalid(part + "tensor " + std::to_string(i) + " (" + leaf.summary() +
                    ") is no leaf that needs a gradient");
    for (size_t k = 0; k < i; ++k)
      if (leaves[k].is_same(leaf))
        throw_invalid(part + "tensors " + std::to_string(k) + " and " + std::to_string(i) + " are the same");
    handle.edges_.push_back(accumulator_of(leaf));
  }
  handle.set_ = std::make_shared<WatchHandle::Set>(std::move(hook), leaves.size(), without, may_wait);
  for (size_t i = 0; i < leaves.size(); ++i) {
    Node& node = *handle.edges_[i].node;
    table().add(&node, {handle.set_, i});
    if (!node.has_hooks()) node.add_hook(0, [](const Tensor&) { return Tensor(); });  // it counts as hooked
  }
  return handle;
}

WatchHandle register_post_accumulate_grad_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook) {
  WatchHandle::Told of_one;
  if (hook)
    of_one = [hook = std::move(hook)](size_t, const Tensor& grad, const auto&) {
      hook(grad);
      return Future<void>();
    };
  return WatchHandle::watch("register_post_accumulate_grad_hook", {leaf}, std::move(of_one), false, false);
}

WatchHandle register_ready_hook(const Tensors& params, std::function<void(size_t, const Tensor&)> hook) {
  WatchHandle::Told at_once;
  if (hook)
    at_once = [hook = std::move(hook)](size_t i, const Tensor& grad, const auto&) {
      hook(i, grad);
      return Future<void>();
    };
  return WatchHandle::watch("register_ready_hook", params, std::move(at_once), true, false);
}

WatchHandle register_ready_hook(const Tensors& params, WaitingHook hook) {
  WatchHandle::Told waits;
  if (hook)
    waits = [hook = std::move(hook)](size_t i, const Tensor&, const auto& pass) { return hook(i, pass); };
  return WatchHandle::watch("register_ready_hook", params, std::move(waits), true, true);
}

void HookBatch::settled(const Accumulate& leaf, const std::function<Tensor()>& total,
                        const std::shared_ptr<PassGradients>& pass) {
  for (const auto& [watch, index] : table().find(&leaf)) {
    {
      internal::Lock lock(mutex_);
      if (!told_[watch].insert(index).second) continue;
    }
    keep(watch->told(index, total && !watch->may_wait() ? total() : Tensor(), pass));
  }
}

void HookBatch::keep(Future<void> end) {
  if (!end.valid()) return;
  {
    const internal::Lock lock(mutex_);
    if (!cancelled_) return waiting_.push_back(std::move(end));
  }
  end.cancel();
}

void HookBatch::cancel() {
  decltype(waiting_) waiting;
  {
    const internal::Lock lock(mutex_);
    cancelled_ = true;
    waiting.swap(waiting_);
  }
  for (const Future<void>& end : waiting) end.cancel();
}

std::vector<Future<void>> HookBatch::finish(const std::shared_ptr<PassGradients>& pass) {
  decltype(told_) told;
  {
    internal::Lock lock(mutex_);
    told.swap(told_);
  }
  for (const auto& [watch, known] : told)
    for (size_t i = 0; i < watch->count(); ++i)
      if (!known.contains(i)) keep(watch->told(i, {}, pass));
  const internal::Lock lock(mutex_);
  return std::exchange(waiting_, {});
}

}  // namespace troupe::autograd
