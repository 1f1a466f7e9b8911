// A .grad with a history holds its leaf, which holds it: what backward() says of that.
#pragma once
#include <atomic>

namespace troupe::autograd {

/// Whether it was said. It is said once.
std::atomic<bool>& gradient_cycle_told();

}  // namespace troupe::autograd
