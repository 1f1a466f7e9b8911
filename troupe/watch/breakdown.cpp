#include "troupe/watch/breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "core/base/text_table.h"

namespace troupe {
namespace {

using internal::actors::TraceEvent;

constexpr double kSlower = 1.5;
constexpr int64_t kFewCalls = 3;  // tell nothing

double median(std::vector<double> all) {
  if (all.empty()) return 0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle);
  return *middle;
}

std::string duration_text(double s) {
  return s < 1e-3 ? fmt::format("{:.1f} us", s * 1e6)
         : s < 1  ? fmt::format("{:.2f} ms", s * 1e3)
                  : fmt::format("{:.2f} s", s);
}

// How often each kind of time is under way on a worker, as time goes on.
enum Kind : size_t { compute, queueing, transfer, waiting, kKinds };
struct Change {
  int64_t time;
  Kind kind;
  int by;
};
class Timeline {
 public:
  void add(int64_t begin, int64_t end, Kind kind) {
    if (begin < end) changes_.push_back({begin, kind, 1}), changes_.push_back({end, kind, -1});
  }
  // Nanoseconds of each kind where none before it is under way, and of none.
  std::array<int64_t, kKinds + 1> sums(int64_t first, int64_t last) {
    std::ranges::sort(changes_, {}, &Change::time);
    std::array<int64_t, kKinds + 1> out{};
    std::array<int64_t, kKinds> open{};
    int64_t at = first;
    const auto until = [&](int64_t time) {
      const auto kind = std::ranges::find_if(open, [](int64_t n) { return n > 0; }) - open.begin();
      out[static_cast<size_t>(kind)] += time - at;
      at = time;
    };
    for (const Change& c : changes_) {
      until(c.time);
      open[c.kind] += c.by;
    }
    until(last);
    return out;
  }

 private:
  std::vector<Change> changes_;
};

// The times of a call at its callee.
struct Handled {
  int64_t begin, start, end;
};

// A method computes from its begin to its answer, but while a call that it has made is out.
void add_compute(Timeline& timeline, int64_t start, int64_t end,
                 std::vector<std::pair<int64_t, int64_t>>* calls) {
  if (calls) {
    std::ranges::sort(*calls);
    for (const auto& [from, to] : *calls) {
      if (to <= start) continue;
      timeline.add(start, std::min(from, end), compute);
      start = std::max(start, to);
      if (start >= end) return;
    }
  }
  timeline.add(start, end, compute);
}

template <class T, class Same>
void compare(std::vector<T>& all, double T::*time, const Same& same) {
  for (T& one : all) {
    std::vector<double> others;
    for (const T& other : all)
      if (&other != &one && other.calls >= kFewCalls && same(one, other)) others.push_back(other.*time);
    const double usual = median(std::move(others));
    if (usual > 0 && one.calls >= kFewCalls) one.slower = one.*time / usual;
  }
}

std::vector<WorkerTime> worker_times(std::map<int64_t, Timeline>& timelines, int64_t first, int64_t last) {
  std::vector<WorkerTime> out;
  for (auto& [worker, timeline] : timelines) {
    const auto sums = timeline.sums(first, last);
    const auto part = [&](size_t kind) {
      return last > first ? static_cast<double>(sums[kind]) / static_cast<double>(last - first) : 0;
    };
    out.push_back({worker, part(compute), part(queueing), part(transfer), part(waiting), part(kKinds)});
  }
  return out;
}

}  // namespace

Breakdown Breakdown::of(const std::vector<TraceEvent>& events, int64_t end) {
  Breakdown out;
  if (events.empty()) return out;
  int64_t first = events[0].begin, last = first;
  for (const auto& e : events) first = std::min(first, e.begin), last = std::max({last, e.begin, e.end});
  last = std::max(last, end);
  std::unordered_map<std::string, Handled> handled;  // by key
  std::unordered_map<std::string, std::vector<std::pair<int64_t, int64_t>>>
      made;  // by the key of the call that made them
  const auto end_of = [&](const TraceEvent& e) { return e.end < 0 ? last : e.end; };
  for (const auto& e : events) {
    if (e.mode == "handle" && !e.key.empty())
      handled[e.key] = {e.begin, e.start < 0 ? end_of(e) : e.start, end_of(e)};
    if (e.mode == "call" && !e.parent.empty()) made[e.parent].emplace_back(e.begin, end_of(e));
  }
  std::map<int64_t, Timeline> timelines;
  std::map<std::pair<int64_t, std::string>, std::pair<std::vector<double>, std::vector<double>>>
      methods;  // run, queued
  std::map<std::pair<int64_t, int64_t>, std::vector<double>> links;
  for (const auto& e : events) {
    Timeline& timeline = timelines[e.worker];
    if (e.mode == "part" || e.mode == "step") timeline.add(e.begin, end_of(e), compute);
    if (e.mode == "handle") {
      const int64_t start = e.start < 0 ? end_of(e) : e.start;
      timeline.add(e.begin, start, queueing);
      const auto calls = made.find(e.key);
      add_compute(timeline, start, end_of(e), calls == made.end() ? nullptr : &calls->second);
      if (e.end < 0 || e.start < 0) continue;
      auto& [run, queued] = methods[{e.worker, e.name}];
      run.push_back(1e-9 * static_cast<double>(e.end - e.start));
      queued.push_back(1e-9 * static_cast<double>(e.start - e.begin));
    }
    if (e.mode != "call") continue;
    const auto at = handled.find(e.key);
    if (at == handled.end() || e.key.empty()) {
      timeline.add(e.begin, end_of(e), transfer);
      continue;
    }
    timeline.add(e.begin, at->second.begin, transfer);
    timeline.add(at->second.begin, at->second.end, waiting);
    timeline.add(at->second.end, end_of(e), transfer);
    if (e.end >= 0 && e.peer != e.worker)
      links[{e.worker, e.peer}].push_back(
          1e-9 * static_cast<double>(e.end - e.begin - (at->second.end - at->second.begin)));
  }
  out.seconds = 1e-9 * static_cast<double>(last - first);
  out.workers = worker_times(timelines, first, last);
  for (auto& [of, times] : methods)
    out.methods.push_back({of.first, of.second, static_cast<int64_t>(times.first.size()), median(times.first),
                           median(times.second)});
  for (auto& [ends, times] : links)
    out.links.push_back({ends.first, ends.second, static_cast<int64_t>(times.size()), median(times)});
  compare(out.methods, &MethodTime::run, [](const auto& a, const auto& b) { return a.method == b.method; });
  compare(out.links, &LinkTime::time, [](const auto&, const auto&) { return true; });
  return out;
}

std::string Breakdown::str() const {
  const auto name = [](int64_t worker) { return "w" + std::to_string(worker); };
  const auto share = [](double x) { return fmt::format("{:.1f}%", 100 * x); };
  std::vector<std::vector<std::string>> rows{
      {"worker", "compute", "queueing", "transfer", "waiting", "idle"}};
  for (const WorkerTime& w : workers)
    rows.push_back({name(w.worker), share(w.compute), share(w.queueing), share(w.transfer), share(w.waiting),
                    share(w.idle)});
  std::string out = fmt::format("where {} went\n", duration_text(seconds)) + internal::text_table(rows, true);
  if (!methods.empty()) {
    rows = {{"method", "worker", "calls", "runs", "in queue"}};
    for (const MethodTime& m : methods)
      rows.push_back(
          {m.method, name(m.worker), std::to_string(m.calls), duration_text(m.run), duration_text(m.queued)});
    out += "\n" + internal::text_table(rows, true);
  }
  for (const MethodTime& m : methods)
    if (m.slower >= kSlower)
      out += fmt::format("! {} on {} takes {:.1f} times as long as on the other workers\n", m.method,
                         name(m.worker), m.slower);
  for (const LinkTime& l : links)
    if (l.slower >= kSlower)
      out += fmt::format("! the way from {} to {} and back takes {}, {:.1f} times as long as the others\n",
                         name(l.from), name(l.to), duration_text(l.time), l.slower);
  return out;
}

}  // namespace troupe
