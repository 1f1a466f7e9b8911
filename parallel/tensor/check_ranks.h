// Whether what should be equal on all ranks is: for who looks for a rank that has drifted away.
#pragma once
#include "core/async/future.h"
#include "core/tensor/tensor.h"
#include "parallel/tensor/meeting.h"

namespace troupe::tp {

/// TROUPE_CHECK_RANKS=1: conversions compare what is whole, forward and back. `invalid` unless it is 0 or 1.
bool checks_ranks();

/// All ranks tell each other a hash of `x`, which may be undefined. Fails with `invalid`, naming layer, rank
/// and direction ("forward"), where they differ.
Future<void> same_on_ranks(const Tensor& x, const Meeting& at, const char* direction);

}  // namespace troupe::tp
