// Dropout of what is cut over the ranks of a group.
#pragma once
#include <string>

#include "collective/group.h"
#include "nn/dropout.h"

namespace troupe::tp {

/// Not for users: dropout with masks of this rank's own. They start from the number of a generator of
/// `whole`, which is equal on all ranks, and the rank; alone, as the whole one's.
nn::Dropout own_dropout(double p, nn::Module& whole, const std::string& generator, const Group& group);

}  // namespace troupe::tp
