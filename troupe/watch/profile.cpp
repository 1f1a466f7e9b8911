#include "troupe/watch/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/chrome_trace.h"
#include "data/formats/file.h"

namespace troupe {
namespace {

using internal::actors::TraceEvent;

double microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

bool at_sender(const TraceEvent& e) {
  return e.mode == "call" || e.mode == "tell" || e.mode == "remote" || e.mode == "send";
}
bool at_receiver(const TraceEvent& e) { return e.mode == "handle" || e.mode == "receive"; }

std::string title(const TraceEvent& e) {
  const std::string here = "w" + std::to_string(e.worker), there = "w" + std::to_string(e.peer);
  if (at_sender(e)) return e.mode + " " + e.name + " " + here + " -> " + there;
  if (at_receiver(e)) return e.mode + " " + e.name + " " + there + " -> " + here;
  return e.mode == "span" || e.mode == "operator" ? e.name : e.mode + " " + e.name + " on " + here;
}

// Rows of one worker, so that what overlaps in time stands below each other.
class Lanes {
 public:
  size_t place(int64_t begin, int64_t end) {
    for (size_t lane = 0; lane < busy_until_.size(); ++lane)
      if (busy_until_[lane] <= begin) return busy_until_[lane] = end, lane;
    busy_until_.push_back(end);
    return busy_until_.size() - 1;
  }

 private:
  std::vector<int64_t> busy_until_;
};

}  // namespace

Trace::Trace(std::vector<TraceEvent> events, int64_t missed, int64_t end, std::vector<ClockOffset> clocks)
    : events_(std::move(events)), missed_(missed), end_(end), clocks_(std::move(clocks)) {
  std::map<int64_t, int64_t> offsets;
  for (const ClockOffset& clock : clocks_) offsets[clock.worker] = clock.offset;
  for (TraceEvent& e : events_) {
    const auto at = offsets.find(e.worker);
    if (at == offsets.end()) continue;
    e.begin -= at->second;
    if (e.end >= 0) e.end = std::max<int64_t>(e.end - at->second, 0);
    if (e.start >= 0) e.start = std::max<int64_t>(e.start - at->second, 0);
  }
  std::stable_sort(events_.begin(), events_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.worker, a.begin) < std::pair(b.worker, b.begin);
  });
}

std::string Trace::json() const {
  int64_t first = events_.empty() ? 0 : events_[0].begin, last = first;
  for (const auto& e : events_) first = std::min(first, e.begin), last = std::max({last, e.begin, e.end});
  last = std::max(last, end_);
  ChromeTrace out;
  std::map<int64_t, Lanes> lanes;
  const auto name_of = [](int64_t worker) { return "w" + std::to_string(worker); };
  for (const auto& e : events_) {
    if (lanes.find(e.worker) == lanes.end()) out.name_process(e.worker, name_of(e.worker));
    const int64_t end = e.end < 0 ? last : e.end;
    const auto lane = static_cast<int64_t>(lanes[e.worker].place(e.begin, std::max(end, e.begin + 1)));
    const ChromeTrace::Place at{e.worker, lane};
    ChromeTrace::Fields about{{"source", name_of(at_receiver(e) ? e.peer : e.worker)},
                              {"destination", name_of(at_receiver(e) ? e.worker : e.peer)}};
    if (!e.key.empty()) about.emplace_back("key", e.key);
    if (!e.parent.empty()) about.emplace_back("parent", e.parent);
    if (e.context) about.emplace_back("context", e.context);
    if (e.bytes) about.emplace_back("bytes", e.bytes);
    if (!e.shapes.empty()) about.emplace_back("shapes", e.shapes);
    if (e.start > e.begin) about.emplace_back("queued", microseconds(e.start - e.begin));
    if (e.end < 0) about.emplace_back("answer", "none");
    const double begin = microseconds(e.begin - first), finish = microseconds(end - first);
    out.box(title(e), e.mode, at, begin, microseconds(end - e.begin), about);
    if (e.key.empty()) continue;
    if (at_sender(e)) out.arrow_begin(e.key, "message", at, begin);
    if (at_receiver(e)) out.arrow_end(e.key, "message", at, begin);
    const double inside = finish - 1e-3;  // the box has ended at its end
    if (e.mode == "handle" && e.end > e.begin) out.arrow_begin(e.key + " back", "message", at, inside);
    if (e.mode == "call" && e.end > e.begin) out.arrow_end(e.key + " back", "message", at, inside);
  }
  return out.str({{"missed", missed_}, {"breakdown", table()}});
}

std::string Trace::table() const {
  std::string out = breakdown().str();
  for (const ClockOffset& clock : clocks_)
    out += fmt::format(
        "the clock of w{} is {:+.6f} s from that of the worker that profiled; error {:.3f} ms\n",
        clock.worker, 1e-9 * static_cast<double>(clock.offset), 1e-6 * static_cast<double>(clock.error));
  return out;
}

void Trace::save(const std::string& path) const {
  const std::string text = json();
  datasets::AtomicFile file(path, "profile");
  file.write(text.data(), text.size());
  file.commit();
}

namespace {

// Waits until all have answered, or that time is over.
template <class T>
void wait_for_all(const std::vector<std::pair<WorkerId, Future<T>>>& asked, Duration patience) {
  const TimePoint end = Clock::system().now() + patience;
  for (const auto& [id, future] : asked)
    (void)future.wait_for(std::max<Duration>(end - Clock::system().now(), Duration(0)));
}

// Of workers on other hosts; one of each host is asked. `patience`: as ProfileOptions has it.
constexpr int kClockRounds = 20;
std::vector<ClockOffset> compare_clocks(internal::actors::Worker& worker, Duration patience) {
  std::map<std::string, ClockSamples> hosts;
  const auto members = worker.members().all();
  const auto now = [&] { return worker.clock().now().time_since_epoch().count(); };
  for (const auto& m : members) {
    if (m.host == worker.host() || hosts.contains(m.host)) continue;
    ClockSamples& samples = hosts[m.host];
    for (int round = 0; round < kClockRounds; ++round) {
      const int64_t asked = now();
      const auto theirs = internal::actors::kProfileClock.ask(worker, m.id);
      if (patience > Duration(0) && !theirs.wait_for(patience)) break;
      const Result<int64_t>& said = theirs.wait();
      if (!said.ok()) break;
      samples.add(asked, said.value(), now());
    }
  }
  std::vector<ClockOffset> out;
  for (const auto& m : members)
    if (const auto at = hosts.find(m.host); at != hosts.end() && at->second.any())
      out.push_back(at->second.of(m.id));
  return out;
}

}  // namespace

Profile::Profile(internal::actors::Worker& worker, ProfileOptions options)
    : worker_(worker), patience_(options.patience), clocks_(compare_clocks(worker, options.patience)) {
  std::vector<std::pair<WorkerId, Future<int64_t>>> begun;
  for (const auto& m : worker.members().all())
    begun.emplace_back(m.id,
                       internal::actors::kProfileBegin.ask(worker, m.id, options.shapes, options.operators));
  try {
    if (patience_ > Duration(0)) wait_for_all(begun, patience_);
    for (auto& [id, future] : begun) {
      if (patience_ == Duration(0) || future.is_ready()) {
        if (patience_ == Duration(0) || future.peek()->ok()) parts_.emplace_back(id, future.get());
        continue;
      }
      // One that begins late would note for nobody.
      future.on_ready([&worker, of = id](const Result<int64_t>& number) {
        if (number.ok()) (void)internal::actors::kProfileEnd.tell(worker, of, number.value());
      });
    }
  } catch (...) {
    (void)end();  // where it has begun
    throw;
  }
}

Profile::~Profile() {
  if (ended_) return;
  try {
    (void)end();
  } catch (const Error&) {  // the cluster has gone
  }
}

Trace Profile::end() {
  if (std::exchange(ended_, true)) throw_invalid("[profile] has ended already: its trace was given then");
  internal::actors::Worker& worker = worker_;
  // What comes to be told is not of the profile.
  const int64_t end = worker.clock().now().time_since_epoch().count();
  std::vector<std::pair<WorkerId, Future<std::pair<std::vector<TraceEvent>, int64_t>>>> noted;
  for (const auto& [id, number] : parts_)
    noted.emplace_back(id, internal::actors::kProfileEnd.ask(worker, id, number));
  if (patience_ > Duration(0)) wait_for_all(noted, patience_);
  std::vector<TraceEvent> all;
  int64_t missed = 0;
  for (auto& [id, future] : noted) {
    if (patience_ > Duration(0) && !future.is_ready()) continue;
    const auto& r = future.wait();
    if (!r.ok() && r.error().kind() == ErrorKind::disconnected) continue;
    auto [events, more] = r.value();
    all.insert(all.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
    missed += more;
  }
  return Trace(std::move(all), missed, end, std::move(clocks_));
}

ProfileSpan::ProfileSpan(const std::string& name)
    : ProfileSpan(
          []() -> internal::actors::Worker& {
            if (!frame().worker)
              throw_invalid("[profile] no worker is active here: name one, for example the Cluster");
            return *frame().worker;
          }(),
          name) {}

}  // namespace troupe
