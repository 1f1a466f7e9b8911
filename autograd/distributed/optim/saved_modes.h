// Which modules of an actor train, and which parameters are frozen, as a checkpoint has it.
#pragma once
#include <string>

#include "core/graph/stateful.h"
#include "nn/module.h"

namespace troupe::internal {

/// By names, which are the same however a model is cut: "modes", without elements, and an entry for each
/// module that does not train, "modes.eval.encoder", and for each parameter that is frozen,
/// "modes.frozen.encoder.weight".
StateDict modes_of(nn::Module& module);
/// Takes them; of names that the module has not, others have. Also what older checkpoints have: one list with
/// a number for each module and parameter, in their order. `invalid` if it does not fit.
void set_modes(nn::Module& module, const StateDict& saved);

/// Whether an entry of a state is one of these: "net.modes.frozen.encoder.weight".
bool is_modes(const std::string& name);
/// "encoder.weight" of that; empty for others.
std::string frozen_in(const std::string& name);

}  // namespace troupe::internal
