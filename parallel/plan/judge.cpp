// A layout file beside what a plan finds.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "parallel/layout/layout.h"
#include "parallel/plan/check.h"
#include "parallel/plan/plan.h"

namespace troupe::parallel {

PlanRow judge_file(const ModelProfile& profile, const PlanOptions& options, const std::string& path) {
  Layout layout = read_layout(path);
  const auto dims = layout.dims();
  const PipelineOptions how = layout.pipelines(dims);
  const std::vector<size_t> cuts = layout.cuts(size_along(dims, "pp"));
  const auto names = layout.workers(dims);
  layout.check_all_read();
  if (!profile.cuts_layers)
    for (const char* ranks : {"tp", "cp"})
      if (const size_t size = size_along(dims, ranks); size > 1)
        throw_invalid(fmt::format(
            "[plan] {}: \"mesh\" has {} {}, and the profile has no layers that ranks divide: use dp and pp",
            path, ranks, size));
  if (!names.empty() && !std::ranges::equal(names, profile.workers, {}, {}, &WorkerCost::name))
    throw_invalid("[plan] " + path +
                  ": a layout is judged on the workers of the profile, in their order, and "
                  "\"workers\" has others: leave it out");
  return judge(profile, options, planned(dims, how, cuts, options.batch ? options.batch : profile.batch));
}

}  // namespace troupe::parallel
