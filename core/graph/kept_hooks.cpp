#include "core/graph/kept_hooks.h"

#include <atomic>
#include <unordered_map>

#include "core/base/mutex.h"

namespace troupe {
namespace {

struct KeptHooks {
  internal::Mutex mutex;
  std::unordered_map<const TensorImpl*, std::vector<Node::Hook>> of;
};

KeptHooks& kept_hooks() {
  static KeptHooks& all = *new KeptHooks;  // leaves may outlive everything
  return all;
}

std::atomic<bool> any{false};  // most programs keep none, and take no lock

}  // namespace

void keep_hook(const Tensor& leaf, Node::Hook hook) {
  KeptHooks& all = kept_hooks();
  std::lock_guard lock(all.mutex);
  all.of[leaf.impl()].push_back(std::move(hook));
  any = true;
}

void add_kept_hooks(const TensorImpl& leaf, Accumulate& to) {
  if (!any.load(std::memory_order_acquire)) return;
  KeptHooks& all = kept_hooks();
  std::lock_guard lock(all.mutex);
  const auto at = all.of.find(&leaf);
  if (at == all.of.end()) return;
  for (const Node::Hook& hook : at->second) to.add_hook(0, hook);
}

void drop_kept_hooks(const TensorImpl& leaf) {
  if (!any.load(std::memory_order_acquire)) return;
  KeptHooks& all = kept_hooks();
  std::unordered_map<const TensorImpl*, std::vector<Node::Hook>>::node_type hooks;  // go after the lock
  std::lock_guard lock(all.mutex);
  hooks = all.of.extract(&leaf);
}

}  // namespace troupe
