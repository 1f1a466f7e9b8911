#include "core/graph/node.h"

#include <utility>

#include "core/base/call_frame.h"
#include "core/base/error.h"
#include "core/graph/autocast_mode.h"

namespace troupe {
namespace {

using Dying = SmallVector<Node*, 16>;

// What a thread records.
struct RecordingThread {
  bool grad_enabled = true;
  uint64_t sequence = 0;  // of its last node outside actors
  Autocast autocast = Autocast::off;
  internal::KeptCasts* casts = nullptr;  // owned
  Dying* dying = nullptr;                // nodes whose count fell to zero while another node was being freed
};
constinit thread_local RecordingThread recording;

}  // namespace

bool grad_enabled() { return recording.grad_enabled; }
GradMode::GradMode(bool enabled) : before_(recording.grad_enabled) { recording.grad_enabled = enabled; }
GradMode::~GradMode() { recording.grad_enabled = before_; }

Autocast autocast_mode() { return recording.autocast; }
AutocastMode::AutocastMode(Autocast mode) : before_(recording.autocast) { recording.autocast = mode; }
AutocastMode::~AutocastMode() {
  const bool ends = recording.autocast != Autocast::off && before_ == Autocast::off;
  recording.autocast = before_;
  if (ends) internal::forget(std::exchange(recording.casts, nullptr));
}
internal::KeptCasts*& internal::kept_casts() { return recording.casts; }

Node::Node() {
  uint64_t* const of_actor = frame().nodes;
  sequence_ = of_actor ? ++*of_actor : ++recording.sequence;
}

void Node::add_hook(uint32_t result, Hook hook) { hooks_.emplace_back(result, std::move(hook)); }

void Node::run_hooks(Tensors& grads) const {
  for (const auto& [result, hook] : hooks_) {
    if (!grads[result].defined()) continue;
    if (Tensor replaced = hook(grads[result]); replaced.defined()) grads[result] = std::move(replaced);
  }
}

void Node::destroy() {
  if (recording.dying) {
    recording.dying->push_back(this);
    return;
  }
  Dying dying{this};
  recording.dying = &dying;
  while (!dying.empty()) {
    Node* node = dying.back();
    dying.resize(dying.size() - 1);
    delete node;
  }
  recording.dying = nullptr;
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
