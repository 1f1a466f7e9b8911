// How writes in place enter the recorded graph: a tensor's new history, that of its base, and that of other
// views.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe {

/// After a recorded write in place to `t`, of which bump_version() was told: `made` is where the gradient of
/// the new elements goes (empty: nowhere). If `t` is a view, the history of its base becomes a step of two
/// inputs, the base before and the new elements; other views of the base, and `t`, make theirs from it when
/// they are asked.
///
/// `made` leads to what `t` was before, too, if that counts (`y.mul_(3)`); if it is overwritten
/// (`y.copy_(x)`), the tensor before gets zeros, as in PyTorch.
void rebase_history(const Tensor& t, Edge made, bool overwritten);

/// For Tensor::grad_fn(): what was written in place since the view `t` was made, or asked last, enters its
/// history. `invalid` where PyTorch refuses, too: the view was made without grad mode, or is one of several
/// results.
void refresh_view_history(TensorImpl& t);

/// "It is one of the views that split() gave. ...": why PyTorch and we refuse to record a write to such a
/// view.
std::string why_not_written(ViewOrigin origin);

}  // namespace troupe
