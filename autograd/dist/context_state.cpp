#include "autograd/dist/context_state.h"

#include "autograd/accumulate.h"

namespace troupe::autograd {

void ContextState::add_send(uint64_t pair, Send send) {
  std::lock_guard lock(mutex_);
  sends_.emplace(pair, std::move(send));
}

void ContextState::drop_send(uint64_t pair) {
  std::unordered_map<uint64_t, Send>::node_type node;  // let go after the lock
  std::lock_guard lock(mutex_);
  node = sends_.extract(pair);
}

ContextState::Send ContextState::find_send(uint64_t pair) const {
  std::lock_guard lock(mutex_);
  auto at = sends_.find(pair);
  return at == sends_.end() ? Send{} : at->second;
}

void ContextState::accumulate(const Tensor& leaf, const Tensor& grad) {
  std::lock_guard lock(mutex_);
  auto& [kept, sum] = grads_[leaf.impl()];
  kept = leaf;
  add_gradient(sum, grad);
}

Tensor ContextState::gradient(const Tensor& leaf) const {
  std::lock_guard lock(mutex_);
  auto at = grads_.find(leaf.impl());
  return at == grads_.end() ? Tensor() : at->second.second;
}

void ContextState::add_peer(WorkerId id) {
  std::lock_guard lock(mutex_);
  peers_.insert(id);
}

std::vector<WorkerId> ContextState::peers() const {
  std::lock_guard lock(mutex_);
  return {peers_.begin(), peers_.end()};
}

}  // namespace troupe::autograd
