#include "tools/watch/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text_table.h"

namespace troupe::tools {
namespace {

using nlohmann::json;

WorkerRow row_of(const json& w) {
  WorkerRow r;
  r.worker = w.at("worker");
  r.host = w.value("host", "");
  r.silent = w.value("silent", "");
  if (!r.silent.empty()) return r;
  r.program = w.at("program");
  r.pid = w.at("pid"), r.steps = w.at("steps"), r.calls = w.at("calls"), r.queued = w.at("queued");
  r.memory = w.at("memory"), r.threads = w.at("threads"), r.more_actors = w.at("more_actors");
  r.clock = w.at("clock"), r.steps_per_second = w.at("steps_per_second"),
  r.step_seconds = w.at("step_seconds");
  r.step_age = w.at("step_age"), r.cpu = w.at("cpu"), r.starved = w.at("starved"), r.busy = w.at("busy");
  r.waited = w.at("waited_in_queues");
  if (const json& loss = w.at("loss"); loss.is_number()) r.loss = loss.get<double>();
  for (const json& a : w.at("actors"))
    r.actors.push_back({a.at("actor"), a.at("type"), a.at("doing"), a.at("seconds"), a.at("busy"),
                        a.at("queued"), a.at("calls")});
  for (const json& m : w.at("methods"))
    r.methods.push_back({m.at("method"), m.at("calls"), m.at("busy"), m.at("queued")});
  for (const auto& [name, value] : w.at("metrics").items()) {
    r.metrics[name] = value;
    if (name.starts_with("tensor_bytes_by_")) r.sent += value.get<int64_t>();
    if (name.ends_with("_memory_bytes") && !name.starts_with("tensor_") && !name.starts_with("process_"))
      r.device_memory += value.get<int64_t>();
  }
  return r;
}

const WorkerRow* earlier(const JobReport* before, const WorkerRow& now) {
  if (!before) return nullptr;
  const auto at = std::ranges::find(before->workers, now.worker, &WorkerRow::worker);
  return at == before->workers.end() || !at->silent.empty() || at->pid != now.pid ? nullptr : &*at;
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.0f}%", 100 * part / whole) : "-";
}

}  // namespace

std::string bytes_text(double bytes) {
  if (bytes < 1000) return fmt::format("{:.0f} B", bytes);
  int unit = -1;
  while (bytes >= 999.5 && unit < 3) bytes /= 1000, ++unit;
  return fmt::format("{:.{}f} {}B", bytes, bytes < 9.95 ? 1 : 0, "kMGT"[unit]);
}

std::string seconds_text(double s) {
  return s > 0 && s < 1e-3 ? fmt::format("{:.0f} us", s * 1e6)
         : s < 1           ? fmt::format("{:.0f} ms", s * 1e3)
         : s < 100         ? fmt::format("{:.1f} s", s)
                           : fmt::format("{:.0f} s", s);
}

JobReport JobReport::parse(const std::string& text) {
  try {
    const json all = json::parse(text);
    if (all.contains("error"))
      throw_error(ErrorKind::failed, "the job answers: " + all.at("error").get<std::string>());
    JobReport out{all.at("job"), all.at("program"), all.at("asked"), all.at("restarts"), {}};
    for (const json& w : all.at("workers")) out.workers.push_back(row_of(w));
    return out;
  } catch (const json::exception& e) {
    throw_error(ErrorKind::failed, std::string("the job's answer cannot be read: ") + e.what());
  }
}

std::string feeds_text(const JobReport& now, const JobReport* before) {
  double rows = 0, waited = 0;
  bool any = false;
  for (const WorkerRow& w : now.workers) {
    const WorkerRow* b = earlier(before, w);
    const auto since = [&](const char* name) {
      const auto at = w.metrics.find(name), was = b->metrics.find(name);
      if (at == w.metrics.end()) return 0.0;
      return double(at->second - (was == b->metrics.end() ? 0 : was->second)) / (w.clock - b->clock);
    };
    if (!b || w.clock <= b->clock || !w.metrics.contains("feed_rows")) continue;
    any = true;
    rows += std::max(since("feed_rows"), 0.0);
    waited = std::max(waited, 1e-6 * since("feed_waited_us"));
  }
  return any ? fmt::format("{:.0f} rows/s of feeds, waited for {:.0f}% of the time", rows, 100 * waited) : "";
}

std::string ps_text(const JobReport& now, const JobReport* before, bool with_actors) {
  const WorkerRow* driver = nullptr;
  for (const WorkerRow& w : now.workers)
    if (w.steps > 0 && (!driver || w.steps > driver->steps)) driver = &w;
  std::string out = fmt::format("job {}: {}, {} worker{}", now.job, now.program, now.workers.size(),
                                now.workers.size() == 1 ? "" : "s");
  if (driver) out += fmt::format(", {} steps, {:.3g} steps/s", driver->steps, driver->steps_per_second);
  if (driver && driver->loss) out += fmt::format(", loss {:.4g}", *driver->loss);
  if (now.restarts) out += fmt::format(", restart {}", now.restarts);
  if (const std::string feeds = feeds_text(now, before); !feeds.empty()) out += ", " + feeds;
  out += "\n";
  out += fmt::format("{:<7} {:>8} {:>5} {:>5} {:>6} {:>7} {:>8} {:>8} {:>7} {:>6}\n", "worker", "pid", "busy",
                     "cpu", "queued", "memory", "sent", "steps", "steps/s", "actors");
  for (const WorkerRow& w : now.workers) {
    if (!w.silent.empty()) {
      out += fmt::format("{:<7} does not answer: {}\n", w.worker, w.silent);
      continue;
    }
    const WorkerRow* b = earlier(before, w);
    const double time = b ? w.clock - b->clock : 0;
    out += fmt::format("{:<7} {:>8} {:>5} {:>5} {:>6} {:>7} {:>8} {:>8} {:>7} {:>6}\n", w.worker, w.pid,
                       b ? percent(w.busy - b->busy, time) : "-", b ? percent(w.cpu - b->cpu, time) : "-",
                       w.queued, bytes_text(static_cast<double>(w.memory)),
                       bytes_text(static_cast<double>(w.sent)), w.steps ? std::to_string(w.steps) : "-",
                       w.steps ? fmt::format("{:.3g}", w.steps_per_second) : "-",
                       static_cast<int64_t>(w.actors.size()) + w.more_actors);
  }
  if (!with_actors) return out;
  size_t wide = 20;
  for (const WorkerRow& w : now.workers)
    for (const ActorRow& a : w.actors) wide = std::max(wide, a.actor.size());
  out +=
      fmt::format("\n{:<{}} {:>6} {:>9} {:>8}  {}\n", "actor", wide, "queued", "calls", "busy", "at work on");
  for (const WorkerRow& w : now.workers) {
    for (const ActorRow& a : w.actors)
      out += fmt::format(
          "{:<{}} {:>6} {:>9} {:>8}  {}\n", a.actor, wide, a.queued, a.calls, seconds_text(a.busy),
          a.doing.empty() ? "-"
                          : a.doing.substr(0, a.doing.find(" on ")) + ", for " + seconds_text(a.seconds));
    if (w.more_actors) out += fmt::format("... and {} more on {}\n", w.more_actors, w.worker);
  }
  return out;
}

}  // namespace troupe::tools
