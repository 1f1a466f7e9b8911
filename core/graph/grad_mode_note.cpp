#include "core/graph/grad_mode_note.h"

#include <atomic>

#include "core/base/call_frame.h"
#include "core/graph/node.h"

namespace troupe {
namespace {

std::atomic<std::string (*)()> note_of_call{nullptr};

}  // namespace

void set_grad_mode_note(std::string (*of_call)()) { note_of_call = of_call; }

std::string why_no_history() {
  if (grad_enabled())
    return "nothing that it was computed from has requires_grad, or it was computed while grad mode was off. "
           "The result of a remote call has a history only if the call was made inside an autograd context";
  if (const auto of_call = note_of_call.load(); of_call && frame().call)
    if (std::string note = of_call(); !note.empty()) return note;
  return "grad mode is off here, as under a NoGradGuard or in a function that local() runs: open an "
         "EnableGradGuard around what is to be recorded";
}

}  // namespace troupe
