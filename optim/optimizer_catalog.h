// Optimizers and schedules as entries: what help, completion and calls by name know of them.
#pragma once
#include <span>

#include "core/entry/maker.h"
#include "optim/schedule.h"

namespace troupe::optim {

/// Every optimizer that make() knows, with its options, their types and defaults. Options are named, and have
/// no positions.
std::span<const Entry> optimizers();

/// The functions of optim/schedule.h. What follows a "warm_up" is a map of a schedule's name and arguments:
/// {schedule = "cosine", steps = 100}; see make_schedule().
std::span<const Maker<Schedule>> schedules();

/// The schedule that a map of its name, under "schedule", and its arguments describes. `invalid`, with the
/// nearest name or the signature, for anything else.
Schedule make_schedule(const Value& spec);

}  // namespace troupe::optim
