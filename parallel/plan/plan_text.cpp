// What a plan prints, and the file that it writes.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text_table.h"
#include "data/formats/json.h"
#include "parallel/plan/why_not.h"

namespace troupe::parallel {
namespace {

std::string percent(double part) { return fmt::format("{:.0f} %", part * 100); }

// The keys of a layout file.
Value keys_of(const PlannedLayout& l) {
  ValueMap mesh{{"dp", l.dp}, {"pp", l.pp}, {"tp", l.tp}};
  if (l.ep > 1) mesh["ep"] = l.ep;
  if (l.cp > 1) mesh["cp"] = l.cp;
  ValueMap out{{"mesh", mesh}, {"schedule", l.schedule}, {"micro_batches", l.micro_batches}};
  if (l.chunks > 1) out["chunks"] = l.chunks;
  if (std::ranges::any_of(l.rows, [&](int64_t r) { return r != l.rows[0]; }))
    out["rows"] = ValueList(l.rows.begin(), l.rows.end());
  ValueList cuts;
  for (const size_t cut : l.cuts) cuts.emplace_back(static_cast<int64_t>(cut));
  if (!cuts.empty()) out["cuts"] = cuts;
  if (l.shard != Shard::none) out["shard"] = std::string(word(l.shard)).substr(7);
  if (l.shard == Shard::all) {
    out["gather"] = l.gather == Per::use ? std::string("use") : std::string("step");
    out["reduce"] = l.reduce == Per::use ? std::string("use") : std::string("step");
  }
  if (l.checkpoint != Checkpoint::never)
    out["checkpoint"] =
        l.checkpoint == Checkpoint::always ? std::string("always") : std::string("except_last");
  return out;
}

}  // namespace

std::string LayoutPlan::str() const {
  std::string text = fmt::format("{} workers, {} rows a step: {} layouts, of which {} were simulated\n",
                                 workers.size(), batch, candidates, simulated);
  for (const std::string& note : notes) text += "note: " + note + "\n";
  text += "\n";
  if (best.empty()) {
    const LayoutCost& c = nearest.cost;
    if (c.memory <= 0) return text + "No layout: there are fewer rows, layers or heads than workers.\n";
    return text + fmt::format(
                      "Nothing fits into {} of a worker. The nearest is {}: {} on {}, {} too much\n"
                      "({} parameters, {} gradients, {} optimizer, {} activations, {} before).\n",
                      bytes_text(memory_limit), nearest.layout.str(), bytes_text(c.memory),
                      workers.at(c.worker), bytes_text(c.memory - memory_limit), bytes_text(c.parameters),
                      bytes_text(c.gradient_bytes), bytes_text(c.state), bytes_text(c.activations),
                      bytes_text(c.before));
  }
  std::vector<std::vector<std::string>> cells{
      {"layout", "step", "computing", "waiting", "exposed sums", "optimizer", "memory", "sent"}};
  for (const auto& [layout, c] : best)
    cells.push_back({layout.str(), readable_seconds(c.step), percent(c.compute / c.step),
                     percent(c.bubble / c.step), readable_seconds(c.sums + c.gradients),
                     readable_seconds(c.optimizer), bytes_text(c.memory), bytes_text(c.sent)});
  text += internal::text_table(cells, true);
  text += "\nThe first spends its step on: " + binds + ".\n";
  if (!not_taken.empty()) text += "\nWhy not\n";
  for (const auto& [kind, why] : not_taken) text += "  " + kind + ": " + why + "\n";
  return text;
}

Value PlanRow::value() const {
  return ValueMap{{"layout", layout.str()},      {"keys", keys_of(layout)},
                  {"step", cost.step},           {"compute", cost.compute},
                  {"bubble", cost.bubble},       {"sums", cost.sums},
                  {"gradients", cost.gradients}, {"optimizer", cost.optimizer},
                  {"memory", cost.memory},       {"sent", cost.sent}};
}

Value LayoutPlan::value() const {
  ValueList rows, said;
  for (const PlanRow& row : best) rows.push_back(row.value());
  for (const std::string& note : notes) said.emplace_back(note);
  ValueMap why;
  for (const auto& [kind, text] : not_taken) why[kind] = text;
  ValueMap out{{"best", rows},   {"binds", binds},           {"why_not", why},        {"notes", said},
               {"batch", batch}, {"candidates", candidates}, {"simulated", simulated}};
  if (best.empty() && nearest.cost.memory > 0) out["nearest"] = nearest.value();
  return out;
}

std::string LayoutPlan::layout_json() const {
  if (best.empty()) throw_invalid("[plan] nothing fits, so there is no layout to write");
  return datasets::json_lines(keys_of(best[0].layout));
}

}  // namespace troupe::parallel
