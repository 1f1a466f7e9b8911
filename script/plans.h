// Measuring a model's layers and planning its layout, from values.
#pragma once
#include "core/tensor/tensor.h"
#include "script/session.h"

namespace troupe::script {

/// What parallel::measure() finds on all workers. `model`: as nn::make() takes it. Options: file (which it
/// writes), repeats, timeout (seconds). As the file has it.
Value measure(Session& session, const Value& model, const Tensor& sample, ValueMap options);

/// What parallel::plan() finds. `profile`: what measure() gave, a file of it, or a list of files of one
/// model. Options: workers, per_host, batch, memory (bytes, or "2G"), parts, stages, sequences, shown, judge
/// (a layout file), layout (a file that it writes). LayoutPlan::value(), with the "table" that `troupe plan`
/// prints, and what is "judged".
Value plan(const Value& profile, ValueMap options);

}  // namespace troupe::script
