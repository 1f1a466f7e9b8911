#include "tools/plan/plan.h"

#include <fmt/format.h>

#include <iostream>
#include <optional>

#include "core/base/error.h"
#include "core/base/readable_bytes.h"
#include "data/formats/file.h"
#include "data/formats/json.h"
#include "parallel/pipeline/schedule/choose_policy.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/why_not.h"
#include "tools/draw/timeline.h"
#include "tools/flags/flags.h"

namespace troupe::tools {
namespace {

// The simulated step as a report of a step that ran.
parallel::StepReport report_of(const parallel::LayoutPlan& plan) {
  const parallel::PlannedLayout& layout = plan.best.at(0).layout;
  const auto policy = parallel::policy_of(layout);
  parallel::StepReport report;
  report.schedule = layout.str() + ", as planned";
  report.workers = parallel::workers_of(policy), report.micro_batches = parallel::micro_batches_of(policy);
  report.map = parallel::map_of(policy);
  report.duration = plan.step.makespan;
  report.busy = plan.step.busy, report.peak_live = plan.step.peak_live;
  report.exposed.assign(report.busy.size(), 0);
  for (const auto& e : plan.step.events)
    report.events.push_back({e.worker, report.map.stage(e.worker, e.action.chunk), e.action, e.begin, e.end});
  return report;
}

int planned(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  parallel::PlanOptions options;
  std::string memory, layout, chart, judged;
  bool json = false;
  auto shown = static_cast<int64_t>(options.shown);
  Flags flags("troupe plan",
              "Says how to cut a model over workers, and why: from what programs measure with "
              "--measure FILE.");
  flags.rest("PROFILE...", files, "what was measured; several of one model are put together")
      .add("-n,--workers", options.workers, "to cut it over; 0: those that were measured", {0, 1 << 20})
      .add("--per-host", options.per_host, "workers of a host; 0: as measured", {0, 1 << 20})
      .add("--batch", options.batch, "rows of a step; 0: the sample's", {0, 1e9})
      .add("--memory", memory, "that a worker may have, such as 2G; any unless given")
      .add("--parts", options.parts,
           "the model is made of parallel::Sharded parts, so that shard all is possible")
      .add("--sequences", options.sequences, "the model can cut sequences over ranks (cp), by heads")
      .add("--rows", shown, "layouts of the table", {1, 1000})
      .add("--judge", judged, "a layout file that is judged beside them")
      .add("--json", json, "print what is found as JSON")
      .output("--layout", layout, "the layout file that is written, for build() and --layout of programs")
      .output("--chart", chart, "picture of the chosen step (SVG)")
      .footer(
          "Example:  troupe run -n 4 sharded input.txt --measure model.json\n"
          "          troupe plan model.json --memory 2G --layout plan.json\n"
          "          troupe run -n 4 sharded input.txt --layout plan.json --check model.json");
  if (auto code =
          flags.parse(files_last(arguments, {"--parts", "--json", "--sequences"}), std::cout, std::cerr))
    return *code;
  if (files.empty()) throw_invalid("no profile given; for instance: troupe plan model.json");
  flags.check_outputs();
  for (const std::string& file : files)
    for (const auto& [flag, written] : {std::pair("--layout", &layout), std::pair("--chart", &chart)})
      if (is_same_file(file, *written))
        throw_invalid(fmt::format("[{}] {}: this is a profile that is read: name another file", flag, file));
  options.shown = static_cast<size_t>(shown);
  if (!memory.empty()) options.memory = static_cast<double>(bytes_named(memory));
  std::vector<parallel::ModelProfile> profiles;
  for (const std::string& file : files) profiles.push_back(parallel::read_profile(file));
  const parallel::ModelProfile profile = parallel::merge(profiles);
  std::optional<parallel::PlanRow> row;
  if (!judged.empty()) row = parallel::judge_file(profile, options, judged);
  const parallel::LayoutPlan plan = parallel::plan(profile, options);
  if (json) {
    Value out = plan.value();
    if (row) (*out.get_if<ValueMap>())["judged"] = row->value();
    std::cout << datasets::json_lines(out) << std::flush;
  } else {
    std::cout << plan.str();
    if (row)
      std::cout << fmt::format("\n{}: {}\n  a step: {}; memory: {}\n", judged, row->layout.str(),
                               parallel::readable_seconds(row->cost.step),
                               parallel::bytes_text(row->cost.memory));
    std::cout << std::flush;
  }
  if (plan.best.empty()) return 1;
  if (!layout.empty()) datasets::write_file(layout, plan.layout_json(), "plan");
  if (!chart.empty()) write_timeline(chart, report_of(plan));
  return 0;
}

}  // namespace

int plan_main(const std::vector<std::string>& arguments) {
  try {
    return planned(arguments);
  } catch (const Error& e) {
    std::cerr << "troupe plan: " << e.message() << "\n";
    return e.kind() == ErrorKind::invalid ? 2 : 1;
  }
}

}  // namespace troupe::tools
