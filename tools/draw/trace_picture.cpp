#include "tools/draw/trace_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/base/error.h"
#include "tools/draw/chart.h"
#include "tools/draw/svg.h"

namespace troupe::tools {
namespace {

using internal::actors::TraceEvent;

// Pixels: of a worker's work and of a lane of operations, with and without the space below; and around them.
constexpr double kWorkRow = 30, kWorkBox = 22, kLaneRow = 20, kLaneBox = 15, kBetween = 12;
constexpr double kAbove = 74, kBefore = 44, kBehind = 20;

struct TraceKind {
  const char *mode, *name, *color;
};
constexpr TraceKind kTraceKinds[] = {{"handle", "calls", kColors[0]},
                                     {"part", "backward", kColors[1]},
                                     {"group", "operations of groups", kColors[2]}};

const TraceKind* trace_kind_of(const TraceEvent& e) {
  const auto at = std::ranges::find_if(kTraceKinds, [&](const TraceKind& k) { return e.mode == k.mode; });
  const bool of_troupe =
      e.mode == "handle" && e.name.find("::") == std::string::npos;  // no actor's own method
  return at == std::end(kTraceKinds) || e.end < e.begin || of_troupe ? nullptr : at;
}

struct TraceBox {
  const TraceEvent* event;
  const TraceKind* kind;
  size_t lane = 0;  // 0: work; else of operations
};
struct TraceRows {
  std::vector<TraceBox> boxes;
  std::vector<int64_t> busy_until;  // by lane of operations
  double height() const { return kWorkRow + kLaneRow * static_cast<double>(busy_until.size()) + kBetween; }
};

void add(TraceRows& rows, const TraceEvent& e, const TraceKind* kind) {
  TraceBox box{&e, kind};
  if (e.mode == "group") {
    auto free = std::ranges::find_if(rows.busy_until, [&](int64_t t) { return t <= e.begin; });
    if (free == rows.busy_until.end()) free = rows.busy_until.insert(free, 0);
    *free = e.end;
    box.lane = 1 + static_cast<size_t>(free - rows.busy_until.begin());
  }
  rows.boxes.push_back(box);
}

void trace_legend(Svg& svg) {
  double x = 16;
  for (const TraceKind& k : kTraceKinds) {
    svg.text += fmt::format("<rect x=\"{:.1f}\" y=\"44\" width=\"14\" height=\"14\" rx=\"2\" fill=\"{}\"/>\n",
                            x, k.color);
    svg.label(x + 20, 56, "start", "", k.name);
    x += 20 + static_cast<double>(std::string_view(k.name).size()) * kCharWidth + 22;
  }
}

}  // namespace

std::string render_trace(const Trace& trace, const std::string& title, int width) {
  if (width < 240 || width > 20'000)
    throw_invalid(fmt::format("[chart] a timeline {} pixels wide, expected 240 to 20000", width));
  std::map<int64_t, TraceRows> workers;
  int64_t first = INT64_MAX, last = 0;
  for (const TraceEvent& e : trace.events())
    if (const TraceKind* kind = trace_kind_of(e)) {
      add(workers[e.worker], e, kind);
      first = std::min(first, e.begin), last = std::max(last, e.end);
    }
  double bottom = kAbove;
  for (const auto& [worker, rows] : workers) bottom += rows.height();
  Svg svg;
  svg.head(width, static_cast<int>(bottom + 54), title);
  svg.label(16, 29, "start", "title", title);
  trace_legend(svg);
  const double all = std::max(static_cast<double>(last - std::min(first, last)) * 1e-6, 1e-6);
  const double from = kBefore, to = std::max(width - kBehind, kBefore + 20);
  const auto place = [&](int64_t t) {
    return from + static_cast<double>(t - first) * 1e-6 / all * (to - from);
  };
  const auto ticks = nice_ticks(0, all, std::clamp(static_cast<int>((to - from) / 90), 2, 10));
  for (const double t : ticks) {
    if (t > all * (1 + 1e-9)) continue;
    const double x = from + t / all * (to - from);
    svg.rule("grid", x, kAbove - 4, x, bottom);
    svg.label(x, bottom + 16, "middle", "quiet", tick_label(t, ticks[1] - ticks[0]));
  }
  svg.label((from + to) / 2, bottom + 38, "middle", "", "milliseconds");
  double top = kAbove;
  for (const auto& [worker, rows] : workers) {
    svg.label(from - 8, top + kWorkBox / 2 + 4, "end", "", fmt::format("w{}", worker));
    for (const TraceBox& b : rows.boxes) {
      const double x = place(b.event->begin), wide = std::max(place(b.event->end) - x, 0.5);
      const double y = top + (b.lane ? kWorkRow + kLaneRow * static_cast<double>(b.lane - 1) : 0);
      const double high = b.lane ? kLaneBox : kWorkBox;
      svg.text += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" rx=\"2\" fill=\"{}\" "
          "fill-opacity=\"0.85\"><title>{}: {:.3f} ms</title></rect>\n",
          x, y, wide, high, b.kind->color, escape_xml(b.event->name),
          static_cast<double>(b.event->end - b.event->begin) * 1e-6);
      const std::string& name = b.event->name;
      const std::string words = b.lane ? name.substr(name.find_last_of("/ ") + 1) : name;
      if (wide > static_cast<double>(words.size()) * kCharWidth + 4)
        svg.text += fmt::format(
            "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" style=\"fill: #ffffff\">{}</text>\n",
            x + wide / 2, y + high / 2 + 4, escape_xml(words));
    }
    top += rows.height();
  }
  return svg.text + "</svg>\n";
}

void write_trace(const std::string& path, const Trace& trace, const std::string& title) {
  write_picture(path, render_trace(trace, title));
}

}  // namespace troupe::tools
