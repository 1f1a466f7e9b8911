// States that an actor's optimizers have of the pieces of the member before it, which it updates as well.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "autograd/distributed/optim/owned_state.h"

namespace troupe::optim {

/// In the actor's mailbox. States of its own pieces, by key of the optimizer.
std::map<std::string, StateDict> states_here();
/// In the actor's mailbox. Its spares have these from now on, which are states_here() of the member before
/// it. `invalid` if they are of other optimizers.
void load_spares(const std::map<std::string, StateDict>& states);
/// In the actor's mailbox. Each optimizer, and what has its spares. `failed` if those are not of now.
internal::StandIns spares_here();

/// In the actor's mailbox. Bytes of the tensors of its spares.
int64_t spare_bytes_here();

}  // namespace troupe::optim
