// Whether a schedule can run, and what is wrong with one that cannot.
#pragma once
#include <optional>
#include <string>

#include "parallel/pipeline/schedule/schedule.h"

namespace troupe::parallel {

/// What is wrong: an action that is missing, there twice or out of place, or workers that would wait for each
/// other for ever. Empty if every stage runs every micro-batch forward and backward, once.
std::optional<std::string> problem_of(const Schedule& schedule);

/// Throws `invalid` with that.
void check(const Schedule& schedule);

/// The stage that an action of a worker belongs to, and what it needs of another stage: "F3 of stage 1";
/// empty if it needs nothing.
std::string needs(const Schedule& schedule, int worker, const Action& action);

}  // namespace troupe::parallel
