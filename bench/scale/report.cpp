#include "bench/scale/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "tools/draw/chart.h"

namespace troupe::bench {
namespace {

std::vector<Curve> all_curves() {
  return {
      {"wait of a call, callers", "scale_callers_us", "callers", "value", "us"},
      {"a call of each of so many callers", "scale_callers_us", "callers", "calls_per_s", "us", true},
      {"so many calls in flight, one caller", "scale_in_flight_us", "in_flight", "value", "us"},
      {"a call to one of so many workers", "scale_workers_us", "workers", "value", "us"},
      {"a call to each worker in turn", "scale_workers_us", "workers", "in_turn", "us"},
      {"a call of each of so many workers", "scale_workers_calls_per_s", "workers", "value", "us", true},
      {"backward pass, hops", "scale_backward_hops_us", "hops", "value", "us"},
      {"forward and backward, hops", "scale_backward_hops_us", "hops", "step", "us"},
      {"backward pass, calls side by side", "scale_backward_fan_out_us", "fan_out", "value", "us"},
      {"forward and backward, calls side by side", "scale_backward_fan_out_us", "fan_out", "step", "us"},
      {"connections, one call made", "scale_connection_bytes", "connections", "value", "B"},
      {"connections, rings in full use", "scale_connection_bytes", "connections", "used", "B"},
      {"actors, where they live", "scale_actor_bytes", "actors", "value", "B"},
      {"actors, where they are referred to", "scale_actor_bytes", "actors", "holder", "B"},
      {"references, on the owner", "scale_reference_bytes", "references", "value", "B"},
      {"references, on the holder", "scale_reference_bytes", "references", "holder", "B"},
  };
}

struct Limit {
  const char *what, *bench, *field, *key;
  double at;  ///< of `key`; no key: any line
  const char* unit;
  double most;
};
constexpr Limit kLimits[] = {
    {"call between two actors of one worker", "scale_local_call_us", "value", "", 0, "us", 3},
    {"the same with a tensor of 4 MiB there and back, never copied", "scale_local_tensor_us", "value", "", 0,
     "us", 3},
    {"a context around a call without tensors", "scale_context_overhead_percent", "value", "tensor", 0, "%",
     5},
    {"a context around a call whose tensor needs no gradient", "scale_context_overhead_percent", "value",
     "tensor", 1, "%", 5},
    {"system calls each way, one call after the other", "scale_system_calls", "value", "asleep", 0, "", 2},
    {"system calls each way, everybody asleep before", "scale_system_calls", "value", "asleep", 1, "", 2},
    {"processor time of a process after the last call", "scale_after_last_call_us", "value", "", 0, "us",
     1000},
    {"32 idle workers together, of one core", "scale_idle_cpu_percent", "value", "workers", 32, "%", 0.5},
};

std::string number(double x) {
  return std::abs(x) >= 1000 ? fmt::format("{:.0f}", x) : fmt::format("{:.3g}", x);
}

std::string bytes(double x) {
  if (std::abs(x) < 10e3) return fmt::format("{:.0f} B", x);
  return std::abs(x) < 10e6 ? fmt::format("{:.0f} kB", x / 1e3) : fmt::format("{:.0f} MB", x / 1e6);
}

std::string cost(const Curve& curve, double x) {
  return curve.unit == "B" ? bytes(x) : number(x) + " " + curve.unit;
}

const Curve* find(const std::vector<Curve>& curves, const std::string& bench, const std::string& field) {
  for (const Curve& c : curves)
    if (c.bench == bench && c.field == field) return &c;
  return nullptr;
}

/// The measured points times `scale`.
void add(tools::Chart& chart, const Curve* curve, const std::string& name, double scale) {
  if (!curve) return;
  tools::Series measured{.name = name};
  for (const Point& p : curve->points) measured.x.push_back(p.x), measured.y.push_back(p.cost * scale);
  chart.series.push_back(measured);
}

/// The same, and the straight line that fits them best, where they lie near one.
void add_with_line(tools::Chart& chart, const Curve* curve, const std::string& name, double scale) {
  if (!curve) return;
  add(chart, curve, name, scale);
  const Growth growth = growth_of(curve->points);
  const Point& last = curve->points.back();
  const double off = (growth.fixed + growth.each * last.x) / std::max(last.cost, 1e-9);
  if (off < 1 / 1.5 || off > 1.5) return;
  tools::Series line{.name =
                         fmt::format("{} + {} each", cost(*curve, growth.fixed), cost(*curve, growth.each))};
  for (const Point& p : curve->points)
    line.x.push_back(p.x), line.y.push_back((growth.fixed + growth.each * p.x) * scale);
  chart.series.push_back(line);
}

void add_megabytes(tools::Chart& chart, const Curve* curve, const std::string& name) {
  if (curve) add(chart, curve, name + ", " + bytes(growth_of(curve->points).each) + " each", 1e-6);
}

/// From nothing, so that its axis begins there.
void add_rate(tools::Chart& chart, const Curve* curve) {
  if (!curve) return;
  tools::Series rate{.name = "calls a second, all together", .x = {0}, .y = {0}, .right = true};
  for (const Point& p : curve->points) rate.x.push_back(p.x), rate.y.push_back(1e6 * p.x / p.cost);
  chart.series.push_back(rate);
}

/// Of one, where the cost is that of x.
void add_of_one(tools::Chart& chart, const Curve* curve, const std::string& name) {
  if (!curve) return;
  tools::Series one{.name = name};
  for (const Point& p : curve->points) one.x.push_back(p.x), one.y.push_back(p.cost / p.x);
  chart.series.push_back(one);
}

}  // namespace

Growth growth_of(const std::vector<Point>& points) {
  if (points.size() < 2) throw_invalid("[bench] growth needs 2 points");
  const auto y = [&](size_t i) { return std::max(points[i].cost, 1e-9); };
  Growth growth;
  double most = 0;
  for (size_t i = 0; i < points.size(); ++i) most = std::max(most, y(i));
  // Least squares of (fixed + each x - y) / y; what is next to nothing does not outweigh everything else.
  double ww = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double near = std::max(y(i), 1e-3 * most), w = 1 / (near * near), x = points[i].x;
    ww += w, wx += w * x, wxx += w * x * x, wy += w * y(i), wxy += w * x * y(i);
  }
  growth.each = (ww * wxy - wx * wy) / (ww * wxx - wx * wx);
  growth.fixed = (wy - growth.each * wx) / ww;
  const size_t last = points.size() - 1;
  size_t eighth = 0;
  while (points[eighth].x < points[last].x / 8) ++eighth;
  growth.ratio = (y(last) / points[last].x) / (y(eighth) / points[eighth].x);
  growth.steepest = -HUGE_VAL;
  for (size_t i = 1; i <= last; ++i) {
    const double exponent = std::log(y(i) / y(i - 1)) / std::log(points[i].x / points[i - 1].x);
    if (exponent > growth.steepest) growth.steepest = exponent, growth.steepest_at = points[i].x;
  }
  return growth;
}

std::vector<Curve> curves_of(const std::vector<Line>& lines) {
  std::vector<Curve> curves = all_curves();
  for (Curve& curve : curves) {
    for (const Line& line : lines) {
      if (line.bench != curve.bench) continue;
      const double x = line.values.at(curve.x), y = line.values.at(curve.field);
      curve.points.push_back({x, curve.rate ? 1e6 * x / y : y});
    }
    std::sort(curve.points.begin(), curve.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
  }
  std::erase_if(curves, [](const Curve& c) { return c.points.size() < 2; });
  return curves;
}

std::string table_of(const std::vector<Curve>& curves, const std::vector<Line>& lines) {
  std::string out =
      "| cost | measured | fixed | each | growth | steepest step |\n"
      "| --- | --- | ---: | ---: | ---: | ---: |\n";
  for (const Curve& curve : curves) {
    std::string measured;
    for (const Point& p : curve.points)
      measured += fmt::format("{}{:g}: {}", measured.empty() ? "" : ", ", p.x,
                              curve.unit == "B" ? bytes(p.cost) : number(p.cost));
    const Growth g = growth_of(curve.points);
    out += fmt::format("| {} | {} | {} | {} | {:.2f} | {:.2f} at {:g} |\n", curve.what, measured,
                       cost(curve, g.fixed), cost(curve, g.each), g.ratio, g.steepest, g.steepest_at);
  }
  std::string limits;
  for (const Limit& limit : kLimits)
    for (const Line& line : lines)
      if (line.bench == limit.bench && (!*limit.key || line.values.at(limit.key) == limit.at))
        limits += fmt::format("| {} | {} {} | {} {} |\n", limit.what, number(line.values.at(limit.field)),
                              limit.unit, number(limit.most), limit.unit);
  if (!limits.empty()) out += "\n| | measured | at most |\n| --- | ---: | ---: |\n" + limits;
  return out;
}

std::vector<std::string> draw(const std::string& folder, const std::vector<Curve>& curves) {
  using tools::Chart;
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  std::vector<std::string> written;
  const auto write = [&](const char* name, const Chart& chart) {
    if (chart.series.empty()) return;
    written.push_back((std::filesystem::path(folder) / name).string());
    tools::write_chart(written.back(), chart);
  };
  Chart callers{.title = "Callers that each wait for their call",
                .x_label = "concurrent callers",
                .left_label = "wait of a call, us",
                .right_label = "calls a second",
                .series = {}};
  add_with_line(callers, find(curves, "scale_callers_us", "value"), "wait of a call", 1);
  add_rate(callers, find(curves, "scale_callers_us", "calls_per_s"));
  write("scale-callers.svg", callers);

  Chart workers{.title = "Processes on one machine",
                .x_label = "worker processes",
                .left_label = "us",
                .right_label = {},
                .series = {}};
  add(workers, find(curves, "scale_workers_us", "value"), "wait of a call to one of them", 1);
  add(workers, find(curves, "scale_workers_us", "in_turn"), "to each in turn", 1);
  add_of_one(workers, find(curves, "scale_workers_calls_per_s", "value"),
             "time of a call while all call their neighbours");
  write("scale-workers.svg", workers);

  Chart backward{.title = "Backward pass",
                 .x_label = "hops, or calls side by side",
                 .left_label = "milliseconds",
                 .right_label = {},
                 .series = {}};
  add_with_line(backward, find(curves, "scale_backward_hops_us", "value"), "hops", 1e-3);
  add_with_line(backward, find(curves, "scale_backward_fan_out_us", "value"), "calls side by side", 1e-3);
  write("scale-backward.svg", backward);

  Chart memory{.title = "Memory of actors and references",
               .x_label = "actors, or references",
               .left_label = "MB",
               .right_label = {},
               .series = {}};
  add_megabytes(memory, find(curves, "scale_actor_bytes", "value"), "actors");
  add_megabytes(memory, find(curves, "scale_reference_bytes", "value"), "references, owner");
  add_megabytes(memory, find(curves, "scale_reference_bytes", "holder"), "references, holder");
  write("scale-memory.svg", memory);

  Chart connections{.title = "Memory of connections, in each process",
                    .x_label = "connections",
                    .left_label = "MB",
                    .right_label = {},
                    .series = {}};
  add_megabytes(connections, find(curves, "scale_connection_bytes", "value"), "one call made");
  add_megabytes(connections, find(curves, "scale_connection_bytes", "used"), "rings in full use");
  write("scale-connections.svg", connections);
  return written;
}

}  // namespace troupe::bench
