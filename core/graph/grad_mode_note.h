// Why a tensor has no history, in words: for errors about gradients.
#pragma once
#include <string>

namespace troupe {

/// The end of a sentence, "...: grad mode is off here, ...". It names the call that the thread's mode came
/// with, if it did.
std::string why_no_history();

/// How to say where the mode came from of the call that the thread handles (CallFrame::call), empty if that
/// did not turn recording off. For the layer that knows calls, once.
void set_grad_mode_note(std::string (*of_call)());

}  // namespace troupe
