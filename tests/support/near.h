// Tensors that are equal up to a tolerance.
#pragma once
#include <algorithm>
#include <cmath>

#include "core/tensor/difference.h"

namespace troupe::testing {

using troupe::difference;

}  // namespace troupe::testing
