// Layouts: who runs where, and by which schedule, from a small JSON file in place of code.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/pipeline/pipeline.h"
#include "parallel/server/consistency/server_policy.h"

namespace troupe::tools {

///   {
///     "stages": ["w1", "w2", "w1"],     the worker of each stage
///     "cuts": [2, 5],                   of an nn::Sequential: the layers before which it is cut
///     "schedule": "zb-h1",              as parallel::make_policy() takes it, a list of its rows, or "auto"
///     "micro_batches": 8, "chunks": 1,
///     "checkpoint": "except_last",      or "never", "always"
///     "most_live": [4, 2],              for "auto"
///     "policies": {"words": "async"}    by parameter, as parallel::ServerPolicy::parse() takes them
///   }
///
/// Only "stages" must be there.
struct Layout {
  std::vector<std::string> places;
  std::vector<size_t> cuts = {};
  parallel::PipelineOptions pipeline = {};
  std::map<std::string, parallel::ServerPolicy> policies = {};
};

/// `invalid`, the text starting with "[layout] name: ", naming key and value: no JSON, keys that are unknown
/// or doubled, values of another kind or out of range, cuts for another number of stages, schedules that do
/// not fit, and policies that there are not.
Layout parse_layout(std::string_view json, const std::string& name);
/// Of a file of at most 1 MiB.
Layout read_layout(const std::string& path);

}  // namespace troupe::tools
