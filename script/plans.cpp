#include "script/plans.h"

#include <fmt/format.h>

#include <chrono>

#include "core/base/readable_bytes.h"
#include "data/formats/file.h"
#include "data/formats/json.h"
#include "parallel/measure/measure.h"
#include "parallel/plan/check.h"
#include "parallel/plan/plan.h"
#include "script/options.h"

namespace troupe::script {
namespace {

parallel::ModelProfile profile_of(const Value& given) {
  if (const auto* file = given.get_if<std::string>()) return parallel::read_profile(*file);
  if (given.get_if<ValueMap>())
    return parallel::parse_profile(datasets::json_text(given), "the given profile");
  const auto* list = given.get_if<ValueList>();
  if (!list || list->empty())
    throw_invalid("[plan] a profile is what measure() gave, a file that it wrote, or a list of such; got " +
                  given.describe());
  std::vector<parallel::ModelProfile> all;
  for (const Value& one : *list) all.push_back(profile_of(one));
  return parallel::merge(all);
}

double bytes_of(const Value& memory) {
  if (const auto* text = memory.get_if<std::string>()) return static_cast<double>(bytes_named(*text));
  if (const auto* whole = memory.get_if<int64_t>()) return static_cast<double>(*whole);
  if (const auto* number = memory.get_if<double>()) return *number;
  throw_invalid("[plan] option memory: expected bytes, or text such as \"2G\", got " + memory.describe());
}

}  // namespace

Value measure(Session& session, const Value& model, const Tensor& sample, ValueMap given) {
  Options options(std::move(given), "[plan]");
  parallel::MeasureOptions out;
  const std::string file = options.take("file", std::string());
  out.repeats = options.take("repeats", out.repeats);
  constexpr double kLongest = 1e9;
  const double timeout = options.take("timeout", std::chrono::duration<double>(out.timeout).count());
  if (!(timeout > 0 && timeout <= kLongest))
    throw_invalid(fmt::format("[plan] option timeout is {} seconds: expected more than 0, and at most {}",
                              timeout, kLongest));
  out.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout));
  options.end();
  const parallel::ModelProfile profile = parallel::measure(session.cluster().here(), model, sample, out);
  if (!file.empty()) parallel::write_profile(profile, file);
  return datasets::read_json(profile.json(), "[plan] ");
}

Value plan(const Value& given_profile, ValueMap given) {
  Options options(std::move(given), "[plan]");
  parallel::PlanOptions out;
  out.workers = options.take("workers", out.workers);
  out.per_host = options.take("per_host", out.per_host);
  out.batch = options.take("batch", out.batch);
  if (const Value memory = options.take("memory", Value()); !memory.is_null()) out.memory = bytes_of(memory);
  out.parts = options.take("parts", out.parts);
  out.stages = options.take("stages", out.stages);
  out.sequences = options.take("sequences", out.sequences);
  const auto shown = options.take("shown", static_cast<int64_t>(out.shown));
  if (shown < 1) throw_invalid(fmt::format("[plan] option shown is {}: expected at least 1", shown));
  out.shown = static_cast<size_t>(shown);
  const std::string layout = options.take("layout", std::string());
  const std::string judged = options.take("judge", std::string());
  options.end();
  const parallel::ModelProfile profile = profile_of(given_profile);
  const parallel::LayoutPlan found = parallel::plan(profile, out);
  Value result = found.value();
  auto& keys = *result.get_if<ValueMap>();
  keys["table"] = found.str();
  if (!judged.empty()) keys["judged"] = parallel::judge_file(profile, out, judged).value();
  if (!layout.empty()) datasets::write_file(layout, found.layout_json(), "plan");
  return result;
}

}  // namespace troupe::script
