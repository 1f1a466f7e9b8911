#include "troupe/profile.h"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <sstream>

namespace troupe {
namespace {

using actors::TraceEvent;

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out << '\\' << c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out << "\\u" << std::hex << std::setw(4) << std::setfill('0') << int(c) << std::dec;
    else
      out << c;
  }
  out << '"';
  return out.str();
}

std::string microseconds(int64_t ns) {
  char text[48];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ns / 1000),
                static_cast<long long>(ns % 1000));
  return text;
}

bool at_sender(const TraceEvent& e) {
  return e.mode == "call" || e.mode == "tell" || e.mode == "remote" || e.mode == "send";
}
bool at_receiver(const TraceEvent& e) { return e.mode == "handle" || e.mode == "receive"; }

std::string title(const TraceEvent& e) {
  const std::string here = "w" + std::to_string(e.worker), there = "w" + std::to_string(e.peer);
  if (at_sender(e)) return e.mode + " " + e.name + " " + here + " -> " + there;
  if (at_receiver(e)) return e.mode + " " + e.name + " " + there + " -> " + here;
  return e.mode == "span" ? e.name : e.mode + " " + e.name + " on " + here;
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

Trace::Trace(std::vector<TraceEvent> events, int64_t missed) : events_(std::move(events)), missed_(missed) {
  std::stable_sort(events_.begin(), events_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.worker, a.begin) < std::pair(b.worker, b.begin);
  });
}

std::string Trace::json() const {
  int64_t first = events_.empty() ? 0 : events_[0].begin, last = first;
  for (const auto& e : events_) first = std::min(first, e.begin), last = std::max({last, e.begin, e.end});
  std::ostringstream out;
  out << "{\"displayTimeUnit\": \"ms\", \"missed\": " << missed_ << ", \"traceEvents\": [";
  const char* comma = "\n";
  std::map<int64_t, Lanes> lanes;
  const auto arrow = [&](const char* phase, const TraceEvent& e, size_t lane, int64_t time, const char* way) {
    out << ",\n{\"ph\": \"" << phase << "\", " << (*phase == 'f' ? "\"bp\": \"e\", " : "")
        << "\"cat\": \"message\", \"name\": \"message\", \"id\": " << quoted(e.key + way)
        << ", \"pid\": " << e.worker << ", \"tid\": " << lane << ", \"ts\": " << microseconds(time - first)
        << "}";
  };
  for (const auto& e : events_) {
    if (lanes.find(e.worker) == lanes.end()) {
      out << comma << "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": " << e.worker
          << ", \"args\": {\"name\": \"w" << e.worker << "\"}}";
      comma = ",\n";
    }
    const int64_t end = e.end < 0 ? last : e.end;
    const size_t lane = lanes[e.worker].place(e.begin, std::max(end, e.begin + 1));
    out << comma << "{\"ph\": \"X\", \"cat\": " << quoted(e.mode) << ", \"name\": " << quoted(title(e))
        << ", \"pid\": " << e.worker << ", \"tid\": " << lane << ", \"ts\": " << microseconds(e.begin - first)
        << ", \"dur\": " << microseconds(end - e.begin) << ", \"args\": {\"source\": \"w"
        << (at_receiver(e) ? e.peer : e.worker) << "\", \"destination\": \"w"
        << (at_receiver(e) ? e.worker : e.peer) << "\"";
    if (!e.key.empty()) out << ", \"key\": " << quoted(e.key);
    if (!e.parent.empty()) out << ", \"parent\": " << quoted(e.parent);
    if (e.context) out << ", \"context\": " << e.context;
    if (e.bytes) out << ", \"bytes\": " << e.bytes;
    if (!e.shapes.empty()) out << ", \"shapes\": " << quoted(e.shapes);
    if (e.end < 0) out << ", \"answer\": \"none\"";
    out << "}}";
    if (e.key.empty()) continue;
    if (at_sender(e)) arrow("s", e, lane, e.begin, "");
    if (at_receiver(e)) arrow("f", e, lane, e.begin, "");
    if (e.mode == "handle" && e.end > e.begin) arrow("s", e, lane, e.end, " back");
    if (e.mode == "call" && e.end > e.begin) arrow("f", e, lane, e.end, " back");
  }
  out << "\n]}\n";
  return out.str();
}

void Trace::save(const std::string& path) const {
  std::ofstream file(path);
  file << json();
  file.close();
  if (!file) throw_error(ErrorKind::failed, "[profile] cannot write " + path);
}

Profile::Profile(Cluster& cluster, ProfileOptions options) : cluster_(cluster) {
  actors::Worker& worker = cluster.worker();
  FrameScope neutral({&worker});
  std::vector<std::pair<WorkerId, Future<Value>>> begun;
  for (const auto& m : worker.members().all())
    begun.emplace_back(m.id, worker.call_service(m.id, actors::kProfileBegin, {Value(options.shapes)}));
  try {
    for (auto& [id, future] : begun) parts_.emplace_back(id, actors::from_value<int64_t>(future.get()));
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
  actors::Worker& worker = cluster_.worker();
  FrameScope neutral({&worker});
  std::vector<Future<Value>> noted;
  for (const auto& [id, number] : parts_)
    noted.push_back(worker.call_service(id, actors::kProfileEnd, {Value(number)}));
  std::vector<TraceEvent> all;
  int64_t missed = 0;
  for (auto& future : noted) {
    const Result<Value>& r = future.wait();
    if (!r.ok() && r.error().kind() == ErrorKind::disconnected) continue;
    auto [events, more] = actors::from_value<std::pair<std::vector<TraceEvent>, int64_t>>(r.value());
    all.insert(all.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
    missed += more;
  }
  return Trace(std::move(all), missed);
}

ProfileSpan::ProfileSpan(const std::string& name)
    : ProfileSpan(
          []() -> actors::Worker& {
            if (!frame().worker)
              throw_invalid("[profile] no worker is active here: name one, for example the Cluster");
            return *static_cast<actors::Worker*>(frame().worker);
          }(),
          name) {}

}  // namespace troupe
