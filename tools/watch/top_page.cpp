#include "tools/watch/top_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/watch/verdict.h"

namespace troupe::tools {
namespace {

constexpr size_t kMostVerdicts = 3;

struct Row {
  const WorkerRow* worker;
  double busy = -1, cpu = -1, starved = -1, sent = -1, calls = -1;  // shares of a second, and by the second
};

std::string share_text(double x) { return x < 0 ? "-" : fmt::format("{:.0f}%", 100 * x); }

std::vector<Row> rows_of(const JobReport& now, const JobReport* before, const TopView& view) {
  std::vector<Row> rows;
  for (const WorkerRow& w : now.workers) {
    const bool found = w.worker.find(view.filter) != std::string::npos ||
                       std::ranges::any_of(w.actors, [&](const ActorRow& a) {
                         return a.actor.find(view.filter) != std::string::npos;
                       });
    if (!found) continue;
    Row& row = rows.emplace_back(&w);
    if (!before) continue;
    const auto b = std::ranges::find(before->workers, w.worker, &WorkerRow::worker);
    if (b == before->workers.end() || b->pid != w.pid || w.clock <= b->clock) continue;
    const double time = w.clock - b->clock;
    row.busy = (w.busy - b->busy) / time, row.cpu = (w.cpu - b->cpu) / time,
    row.starved = (w.starved - b->starved) / time;
    row.sent = static_cast<double>(w.sent - b->sent) / time,
    row.calls = static_cast<double>(w.calls - b->calls) / time;
  }
  std::ranges::stable_sort(rows, std::greater(), [&](const Row& r) {
    switch (view.sort) {
      case 'b':
        return r.busy;
      case 'c':
        return r.cpu;
      case 'q':
        return static_cast<double>(r.worker->queued);
      case 'm':
        return static_cast<double>(r.worker->memory);
      case 's':
        return r.sent;
      default:
        return 0.0;
    }
  });
  return rows;
}

// What the busiest of its actors does.
std::string doing_of(const WorkerRow& w) {
  const ActorRow* longest = nullptr;
  for (const ActorRow& a : w.actors)
    if (!a.doing.empty() && (!longest || a.seconds > longest->seconds)) longest = &a;
  if (!longest) return "";
  return longest->doing.substr(0, longest->doing.find(" on ")) +
         (longest->seconds >= 0.1 ? ", " + seconds_text(longest->seconds) : "");
}

void add_opened(std::vector<std::string>& lines, const WorkerRow& w) {
  lines.push_back("");
  lines.push_back(fmt::format("actors of {}{:<19} {:>6} {:>9} {:>8}  {}", w.worker, "", "queued", "calls",
                              "busy", "at work on"));
  for (const ActorRow& a : w.actors)
    lines.push_back(fmt::format(
        "{:<29} {:>6} {:>9} {:>8}  {}", a.actor.substr(0, 29), a.queued, a.calls, seconds_text(a.busy),
        a.doing.empty() ? "-" : a.doing.substr(0, a.doing.find(" on ")) + ", " + seconds_text(a.seconds)));
  if (w.more_actors) lines.push_back(fmt::format("... and {} more", w.more_actors));
  lines.push_back(
      fmt::format("{:<36} {:>9} {:>9} {:>9} {:>9}", "method", "calls", "busy", "a call", "in queue"));
  std::vector<MethodRow> methods = w.methods;
  std::ranges::stable_sort(methods, std::greater(), &MethodRow::busy);
  for (const MethodRow& m : methods)
    lines.push_back(fmt::format(
        "{:<36} {:>9} {:>9} {:>9} {:>9}", m.method.substr(0, 36), m.calls, seconds_text(m.busy),
        fmt::format("{:.3g} ms", 1e3 * m.busy / static_cast<double>(std::max<int64_t>(m.calls, 1))),
        seconds_text(m.queued)));
}

}  // namespace

TopPage top_page(const JobReport& now, const JobReport* before, const std::string& cause, const TopView& view,
                 size_t columns) {
  TopPage page;
  const WorkerRow* driver = nullptr;
  for (const WorkerRow& w : now.workers)
    if (w.steps > 0 && (!driver || w.steps > driver->steps)) driver = &w;
  std::string head =
      fmt::format("{} ({}), {} workers", now.program, now.job.substr(0, 8), now.workers.size());
  if (driver) {
    head += fmt::format("  {} steps  {:.3g}/s", driver->steps, driver->steps_per_second);
    if (driver->loss) head += fmt::format("  loss {:.4g}", *driver->loss);
    if (driver->step_age > std::max(1.0, 10 * driver->step_seconds))
      head += "  this step: " + seconds_text(driver->step_age);
  }
  if (now.restarts) head += fmt::format("  restart {}", now.restarts);
  page.lines.push_back(head);
  if (const std::string feeds = feeds_text(now, before); !feeds.empty()) page.lines.push_back(feeds);
  if (!cause.empty()) page.lines.push_back("! " + cause);
  if (before) {
    const auto all = verdicts(*before, now);
    for (size_t i = 0; i < std::min(all.size(), kMostVerdicts); ++i)
      if (cause.empty() || !all[i].ends_with("does not answer")) page.lines.push_back("! " + all[i]);
  }
  page.lines.push_back("");
  const bool gpus = std::ranges::any_of(now.workers, [](const WorkerRow& w) { return w.device_memory > 0; });
  const auto gpu = [&](const std::string& text) {
    return gpus ? fmt::format(" {:>7}", text) : std::string();
  };
  page.lines.push_back(fmt::format("{:<6} {:>5} {:>5} {:>6} {:>6} {:>7}{} {:>8} {:>7}  {}", "worker", "busy",
                                   "cpu", "no cpu", "queued", "memory", gpu("gpu"), "sent/s", "calls/s",
                                   "does"));
  const std::vector<Row> rows = rows_of(now, before, view);
  page.rows = rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    const WorkerRow& w = *r.worker;
    if (i == view.at) page.chosen = page.lines.size();
    if (!w.silent.empty())
      page.lines.push_back(fmt::format("{:<6} does not answer: {}", w.worker, w.silent));
    else
      page.lines.push_back(fmt::format(
          "{:<6} {:>5} {:>5} {:>6} {:>6} {:>7}{} {:>8} {:>7}  {}", w.worker, share_text(r.busy),
          share_text(r.cpu), share_text(r.starved), w.queued, bytes_text(static_cast<double>(w.memory)),
          gpu(bytes_text(static_cast<double>(w.device_memory))), r.sent < 0 ? "-" : bytes_text(r.sent),
          r.calls < 0 ? "-" : fmt::format("{:.0f}", r.calls), doing_of(w)));
  }
  if (view.open && *view.open < rows.size() && rows[*view.open].worker->silent.empty())
    add_opened(page.lines, *rows[*view.open].worker);
  for (std::string& line : page.lines)
    if (line.size() > columns) line.resize(columns);
  return page;
}

}  // namespace troupe::tools
