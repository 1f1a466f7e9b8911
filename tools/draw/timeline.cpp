#include "tools/draw/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/chrome_trace.h"
#include "core/base/error.h"
#include "tools/draw/chart.h"
#include "tools/draw/svg.h"

namespace troupe::tools {
namespace {

using parallel::StepReport;
using parallel::Work;

constexpr std::array<const char*, 4> kNames = {"forward", "backward", "backward: input", "backward: weights"};

const char* color(Work work) {
  switch (work) {
    case Work::forward:
      return kColors[0];
    case Work::backward:
    case Work::input:
      return kColors[1];
    case Work::weight:
      return kColors[2];
  }
  return kColors[0];
}

std::string counts(const StepReport& r) {
  return fmt::format("{} worker{}, {} micro-batch{}; idle {:.1f} %, waiting for messages {:.1f} %", r.workers,
                     r.workers == 1 ? "" : "s", r.micro_batches, r.micro_batches == 1 ? "" : "es",
                     100 * r.bubble(), 100 * r.exposed_communication());
}
std::string summary(const StepReport& r) { return r.schedule + ": " + counts(r); }

// The axis of a step of so many seconds.
struct Unit {
  double per_second;
  const char* name;
};
Unit unit_of(double seconds) {
  if (seconds >= 10) return {1, "seconds"};
  return seconds >= 1e-3 ? Unit{1e3, "milliseconds"} : Unit{1e6, "microseconds"};
}

constexpr double kRow = 34, kBox = 26, kTop = 74, kLeft = 44, kRight = 120;
constexpr double kTitleChar = 10;  // wide, on average
constexpr double kEdged = 4;       // narrower boxes would be all edge

void legend(Svg& svg, const StepReport& report) {
  double x = 16;
  for (const Work work : {Work::forward, Work::backward, Work::input, Work::weight}) {
    if (std::none_of(report.events.begin(), report.events.end(),
                     [&](const auto& e) { return e.action.work == work; }))
      continue;
    const std::string name = kNames[static_cast<size_t>(work)];
    svg.text += fmt::format("<rect x=\"{:.1f}\" y=\"44\" width=\"14\" height=\"14\" rx=\"2\" fill=\"{}\"/>\n",
                            x, color(work));
    svg.label(x + 20, 56, "start", "", name);
    x += 20 + static_cast<double>(name.size()) * kCharWidth + 22;
  }
}

}  // namespace

std::string render_timeline(const StepReport& report, int width) {
  if (width < 240 || width > 20'000)
    throw_invalid(fmt::format("[chart] a timeline {} pixels wide, expected 240 to 20000", width));
  const double bottom = kTop + kRow * report.workers;
  Svg svg;
  svg.head(width, static_cast<int>(bottom + 54), summary(report));
  const std::string title = summary(report);
  const bool fits = 32 + static_cast<double>(title.size()) * kTitleChar <= width;
  svg.label(16, 29, "start", "title", fits ? title : report.schedule);
  if (!fits) svg.label(width - 16, 56, "end", "quiet", counts(report));
  legend(svg, report);
  const Unit unit = unit_of(report.duration);
  const double all = std::max(report.duration, 1e-9) * unit.per_second;
  const double from = kLeft, to = std::max(width - kRight, kLeft + 20);
  const auto place = [&](double seconds) { return from + seconds * unit.per_second / all * (to - from); };
  const auto ticks = nice_ticks(0, all, std::clamp(static_cast<int>((to - from) / 90), 2, 10));
  for (const double t : ticks) {
    if (t > all * (1 + 1e-9)) continue;
    const double x = place(t / unit.per_second);
    svg.rule("grid", x, kTop - 4, x, bottom + 4);
    svg.label(x, bottom + 20, "middle", "quiet", tick_label(t, ticks[1] - ticks[0]));
  }
  svg.label((from + to) / 2, bottom + 42, "middle", "", unit.name);
  for (int w = 0; w < report.workers; ++w) {
    const double y = kTop + kRow * w;
    svg.label(from - 8, y + kBox / 2 + 4, "end", "", fmt::format("w{}", w));
    svg.label(to + 8, y + kBox / 2 + 4, "start", "quiet",
              fmt::format("at most {} alive", report.peak_live.at(static_cast<size_t>(w))));
  }
  for (const auto& e : report.events) {
    const double x = place(e.begin), wide = std::max(place(e.end) - x, 0.5), y = kTop + kRow * e.worker;
    svg.text += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" rx=\"2\" fill=\"{}\" "
        "stroke=\"#16191f\" "
        "stroke-width=\"{}\" fill-opacity=\"{:.2f}\"><title>{} of stage {}: {:.3f} ms</title></rect>\n",
        x, y, wide, kBox, color(e.action.work), wide > kEdged ? 0.4 : 0,
        std::max(0.45, 0.8 + 0.2 * std::min(e.action.chunk, 1)), e.action.str(), e.stage,
        (e.end - e.begin) * 1e3);
    const std::string number = std::to_string(e.action.micro_batch);
    if (wide > static_cast<double>(number.size()) * kCharWidth + 2)
      svg.text += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" style=\"fill: #ffffff\">{}</text>\n",
          x + wide / 2, y + kBox / 2 + 4, number);
  }
  return svg.text + "</svg>\n";
}

void write_timeline(const std::string& path, const StepReport& report) {
  write_picture(path, render_timeline(report));
}

std::string chrome_trace(const StepReport& report) {
  const auto us = [](double seconds) { return seconds * 1e6; };
  ChromeTrace out;
  for (int w = 0; w < report.workers; ++w) out.name_row({0, w}, fmt::format("worker {}", w));
  for (const auto& e : report.events)
    out.box(e.action.str(), kNames[static_cast<size_t>(e.action.work)], {0, e.worker}, us(e.begin),
            us(e.end - e.begin), {{"stage", int64_t{e.stage}}});
  const auto find = [&](int stage, int micro_batch, bool forward) {
    return std::find_if(report.events.begin(), report.events.end(), [&](const auto& e) {
      return e.stage == stage && e.action.micro_batch == micro_batch && e.action.work != Work::weight &&
             (e.action.work == Work::forward) == forward;
    });
  };
  int count = 0;
  for (const auto& m : report.messages) {
    const bool forward = m.from < m.to;
    const auto sender = find(m.from, m.micro_batch, forward), user = find(m.to, m.micro_batch, forward);
    if (sender == report.events.end() || user == report.events.end())
      continue;  // the loss at the caller, say
    const std::string id = std::to_string(++count), name = forward ? "output" : "gradient";
    out.arrow_begin(id, name, {0, sender->worker}, us(sender->end) - 2e-3);
    out.arrow_end(id, name, {0, user->worker}, us(user->begin),
                  {{"sent", us(m.sent)}, {"arrived", us(m.arrived)}, {"bytes", m.bytes}});
  }
  return out.str({{"summary", summary(report)}});
}

void write_chrome_trace(const std::string& path, const StepReport& report) {
  write_picture(path, chrome_trace(report));
}

}  // namespace troupe::tools
