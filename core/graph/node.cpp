#include "core/graph/node.h"

#include "core/base/call_frame.h"
#include "core/base/error.h"

namespace troupe {
namespace {

thread_local bool tls_grad_enabled = true;
thread_local uint64_t tls_sequence = 0;

// Nodes whose count fell to zero while another node was being freed on this thread.
using Dying = SmallVector<Node*, 16>;
thread_local Dying* tls_dying = nullptr;

}  // namespace

bool grad_enabled() { return tls_grad_enabled; }
GradMode::GradMode(bool enabled) : before_(tls_grad_enabled) { tls_grad_enabled = enabled; }
GradMode::~GradMode() { tls_grad_enabled = before_; }

Node::Node() {
  uint64_t* const of_actor = frame().nodes;
  sequence_ = of_actor ? ++*of_actor : ++tls_sequence;
}

void Node::add_hook(uint32_t result, Hook hook) { hooks_.emplace_back(result, std::move(hook)); }

void Node::run_hooks(Tensors& grads) const {
  for (const auto& [result, hook] : hooks_) {
    if (!grads[result].defined()) continue;
    if (Tensor replaced = hook(grads[result]); replaced.defined()) grads[result] = std::move(replaced);
  }
}

void Node::destroy() {
  if (tls_dying) {
    tls_dying->push_back(this);
    return;
  }
  Dying dying{this};
  tls_dying = &dying;
  while (!dying.empty()) {
    Node* node = dying.back();
    dying.resize(dying.size() - 1);
    delete node;
  }
  tls_dying = nullptr;
}

Accumulate::~Accumulate() {
  AutogradMeta& meta = *leaf_->autograd;
  std::lock_guard lock(meta.mutex);
  if (meta.accumulator == this) meta.accumulator = nullptr;
}

Tensors Accumulate::apply(Tensors&&) {
  throw_error(ErrorKind::failed, "[autograd] an Accumulate node is for the engine's sink, not for apply()");
}

}  // namespace troupe
