// A layout file beside what a plan finds.
#include "parallel/layout/layout.h"
#include "parallel/plan/check.h"
#include "parallel/plan/plan.h"

namespace troupe::parallel {

PlanRow judge_file(const ModelProfile& profile, const PlanOptions& options, const std::string& path) {
  Layout layout = read_layout(path);
  const auto dims = layout.dims();
  const PipelineOptions how = layout.pipelines(dims);
  const std::vector<size_t> cuts = layout.cuts(size_along(dims, "pp"));
  layout.check_all_read();
  return judge(profile, options, planned(dims, how, cuts, options.batch ? options.batch : profile.batch));
}

}  // namespace troupe::parallel
