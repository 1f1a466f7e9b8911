// The table of schedules.
#include "core/base/error.h"
#include "optim/optimizer_catalog.h"

namespace troupe::optim {
namespace {

constexpr int kMostStages = 100;  // each takes some of the stack

using Table = std::vector<Maker<Schedule>>;

using internal::with;

std::vector<Parameter> and_cycle(std::vector<Parameter> first) {
  const OneCycleOptions standard;
  static_assert(internal::field_count<OneCycleOptions>() == 4);
  first.push_back(with("pct_start", standard.pct_start));
  first.push_back(with("div_factor", standard.div_factor));
  first.push_back(with("final_div_factor", standard.final_div_factor));
  first.push_back(with("linear", standard.linear));
  return first;
}

Table make_table() {
  Table t;
  t.push_back(maker<Schedule>("step_decay", &step_decay, {{"size"}, with("gamma", 0.1)},
                              "Times gamma every size steps."));
  t.push_back(maker<Schedule>("multi_step", &multi_step, {{"milestones"}, with("gamma", 0.1)},
                              "Times gamma at each of the milestones."));
  t.push_back(maker<Schedule>("exponential", &exponential, {{"gamma"}}, "Times gamma every step."));
  t.push_back(maker<Schedule>("cosine", &cosine, {{"steps"}, with("floor", 0.0)},
                              "Half a cosine down to floor in so many steps."));
  t.push_back(maker<Schedule>(
      "warm_up",
      [](int64_t steps, Value then, double start) {
        return warm_up(steps, then.is_null() ? Schedule() : make_schedule(then), start);
      },
      {{"steps"}, with("then", Value()), with("start", 0.0)},
      "Linear from start times the rate to the rate, then the schedule that `then` describes."));
  t.push_back(maker<Schedule>(
      "one_cycle",
      [](int64_t steps, double pct_start, double div_factor, double final_div_factor, bool linear) {
        return one_cycle(steps, {pct_start, div_factor, final_div_factor, linear});
      },
      and_cycle({{"steps"}}), "Up to the rate, then down to almost nothing, in so many steps."));
  t.push_back(maker<Schedule>(
      "one_cycle_momentum",
      [](int64_t steps, double least, double most, double pct_start, double div_factor,
         double final_div_factor, bool linear) {
        return one_cycle_momentum(steps, least, most, {pct_start, div_factor, final_div_factor, linear});
      },
      and_cycle({{"steps"}, with("least", 0.85), with("most", 0.95)}),
      "For momentum or beta1 beside one_cycle: from most down to least and back."));
  return t;
}

}  // namespace

std::span<const Maker<Schedule>> schedules() {
  static const Table all = make_table();
  return all;
}

Schedule make_schedule(const Value& spec) {
  static const std::vector<Entry> entries(schedules().begin(), schedules().end());
  const auto* map = spec.get_if<ValueMap>();
  const auto at = map ? map->find("schedule") : ValueMap::const_iterator();
  const auto* name = map && at != map->end() ? at->second.get_if<std::string>() : nullptr;
  if (!name)
    throw_invalid("[optim] a schedule is described by a map ({schedule = \"cosine\", steps = 100}), got " +
                  spec.describe());
  int depth = 0;
  for (const Value* next = &spec; next && next->get_if<ValueMap>(); ++depth) {
    const auto then = next->get_if<ValueMap>()->find("then");
    next = then == next->get_if<ValueMap>()->end() ? nullptr : &then->second;
  }
  if (depth > kMostStages)
    throw_invalid("[optim] a schedule has at most " + std::to_string(kMostStages) +
                  " parts, one after the other; got " + std::to_string(depth));
  ValueMap named = *map;
  named.erase("schedule");
  const Entry& entry = find_entry(entries, *name, "[optim] unknown schedule");
  return schedules()[size_t(&entry - entries.data())]({}, std::move(named));
}

}  // namespace troupe::optim
