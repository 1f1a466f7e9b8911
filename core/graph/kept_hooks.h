// Hooks that stay with a leaf. Beside the leaves, of which hardly any has one.
#pragma once
#include "core/graph/node.h"

namespace troupe {

/// For as long as the leaf lives: every Accumulate that is made for it from now on has the hook.
void keep_hook(const Tensor& leaf, Node::Hook hook);

/// Gives those of the leaf to its new Accumulate.
void add_kept_hooks(const TensorImpl& leaf, Accumulate& to);
/// The leaf goes.
void drop_kept_hooks(const TensorImpl& leaf);

}  // namespace troupe
