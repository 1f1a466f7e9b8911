// The messages of calls whose arguments come later (actors/worker/late_replies.h).
#pragma once
#include "actors/worker/service.h"

namespace troupe::internal::actors {

/// Caller to callee: the result of a call is an argument of another one, whose worker waits for it there. If
/// the call has been answered, nothing happens, and the caller passes the argument on. Keep: the answer is a
/// reference to the result.
inline constexpr Service<void(uint64_t call, WorkerId to, uint64_t number, uint32_t index, bool keep)>
    kHandOver{"call.hand_over", {.timeout = Duration(0), .in_context = true}};
/// Maker of an argument, or caller, to callee: an argument of a call that waits for it. The number is that of
/// the call among the caller's late calls to this worker.
inline constexpr Service<void(WorkerId caller, uint64_t number, uint32_t index, Value value)> kArgument{
    "call.argument", {.timeout = Duration(0), .in_context = true, .takes_unplaced = true}};

}  // namespace troupe::internal::actors
