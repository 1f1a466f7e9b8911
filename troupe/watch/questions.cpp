#include "troupe/watch/questions.h"

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "actors/worker/reports.h"
#include "core/base/mutex.h"
#include "core/base/process_facts.h"
#include "troupe/watch/doors.h"

namespace troupe::internal::watch {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostActors = 200;  // of each worker; the longest queues first

// Labels may hold any bytes, from other processes: what is no UTF-8 is replaced.
std::string text_of_json(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json number_or_null(double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); }

const char* kind_name(Wait::Kind kind) {
  return kind == Wait::silent ? "silent" : kind == Wait::cycle ? "cycle" : "cause";
}

ordered_json json_of(const actors::WorkerReport& r) {
  ordered_json actors = ordered_json::array(), methods = ordered_json::array();
  int64_t calls = 0, queued = 0;
  double busy = 0, waited = 0;
  for (const auto& a : r.actors) {
    actors.push_back({{"actor", a.label},
                      {"type", a.type},
                      {"doing", a.doing},
                      {"seconds", a.seconds},
                      {"queued", a.queued},
                      {"calls", a.calls},
                      {"busy", a.busy}});
  }
  for (const auto& m : r.methods) {
    methods.push_back({{"method", m.name}, {"calls", m.calls}, {"busy", m.busy}, {"queued", m.queued}});
    calls += m.calls, busy += m.busy, waited += m.queued;
  }
  if (const auto at = r.metrics.find("queued_calls"); at != r.metrics.end()) queued = at->second;
  return {{"worker", r.worker},
          {"pid", r.process.pid},
          {"program", r.process.program},
          {"clock", r.clock},
          {"steps", r.progress.steps},
          {"steps_per_second", r.progress.per_second},
          {"step_seconds", r.progress.median},
          {"step_age", r.progress.age},
          {"loss", number_or_null(r.progress.loss)},
          {"cpu", r.process.cpu},
          {"starved", r.process.starved},
          {"memory", r.process.memory},
          {"threads", r.process.threads},
          {"calls", calls},
          {"busy", busy},
          {"waited_in_queues", waited},
          {"queued", queued},
          {"actors", actors},
          {"more_actors", r.more_actors},
          {"methods", methods},
          {"metrics", r.metrics}};
}

}  // namespace

struct Questions::Patience {
  Mutex mutex;
  std::condition_variable wake;
  bool stopped TROUPE_GUARDED_BY(mutex) = false;
};

Questions::Questions(actors::Worker& worker, std::string job)
    : worker_(worker), job_(std::move(job)), patience_(std::make_shared<Patience>()) {}
Questions::~Questions() { stop(); }

void Questions::stop() {
  Lock lock(patience_->mutex);
  patience_->stopped = true;
  patience_->wake.notify_all();
}

bool Questions::pause(Duration time) {
  Patience& p = *patience_;
  const auto end = std::chrono::steady_clock::now() + time;
  Lock lock(p.mutex);
  return !p.wake.wait_until(lock.native(), end, [&]() TROUPE_REQUIRES(p.mutex) { return p.stopped; });
}

// All members are asked at once; who says nothing in time has failed with `deadline`.
template <class T, class Ask>
std::vector<std::pair<actors::Member, Result<T>>> Questions::gather(const Ask& ask) {
  std::vector<std::pair<actors::Member, Future<T>>> asked;
  for (const auto& m : worker_.members().all()) {
    asked.emplace_back(m, ask(m.id));
    asked.back().second.watch([p = patience_](const Result<T>&) {
      Lock lock(p->mutex);
      p->wake.notify_all();
    });
  }
  const auto end = std::chrono::steady_clock::now() + kPatience;
  {
    Patience& p = *patience_;
    Lock lock(p.mutex);
    p.wake.wait_until(lock.native(), end, [&]() TROUPE_REQUIRES(p.mutex) {
      return p.stopped || std::ranges::all_of(asked, [](const auto& a) { return a.second.is_ready(); });
    });
  }
  std::vector<std::pair<actors::Member, Result<T>>> out;
  for (const auto& [member, future] : asked) {
    const Result<T>* const came = future.peek();
    out.emplace_back(member, came ? *came : Result<T>(Error(ErrorKind::deadline, why_silent(member))));
  }
  return out;
}

std::string Questions::why_silent(const actors::Member& member) const {
  std::string within = "nothing within " + std::to_string(kPatience / std::chrono::milliseconds(1)) + " ms";
  if (member.host != worker_.host()) return within;
  for (const Door& door : doors_here()) {
    if (door.job != job_ || door.rank != member.id) continue;
    const char state = process_state(door.pid);
    const std::string process = "its process " + std::to_string(door.pid);
    if (state == 'T' || state == 't')
      return process + " is stopped (kill -CONT " + std::to_string(door.pid) + " lets it go on)";
    return process + " is in state " + std::string(1, state) + " and has said " + within;
  }
  return within;
}

std::vector<Wait> Questions::waits() {
  std::vector<Asked> all;
  for (auto& [member, said] :
       gather<actors::CallsReport>([&](WorkerId id) { return actors::ask_calls(worker_, id, kPatience); })) {
    Asked& one = all.emplace_back();
    one.id = member.id, one.name = member.name;
    if (said.ok())
      one.calls = said.value();
    else
      one.why_silent =
          said.error().kind() == ErrorKind::deadline ? why_silent(member) : said.error().message();
  }
  return find_waits(all);
}

std::string Questions::waits_json() {
  ordered_json waits = ordered_json::array();
  for (const Wait& w : this->waits())
    waits.push_back({{"kind", kind_name(w.kind)},
                     {"what", w.what},
                     {"waiting", w.waiting},
                     {"seconds", w.seconds},
                     {"left", w.left < 0 ? ordered_json(nullptr) : ordered_json(w.left)},
                     {"line", w.line()},
                     {"way", w.way}});
  return text_of_json(
      {{"job", job_}, {"program", program_name()}, {"asked", worker_.name()}, {"waits", waits}});
}

std::string Questions::report_json() {
  Lock lock(report_mutex_);
  if (report_.empty() || Clock::system().now() - reported_ > kFresh) {
    report_ = new_report();
    reported_ = Clock::system().now();
  }
  return report_;
}

std::string Questions::new_report() {
  ordered_json workers = ordered_json::array();
  for (const auto& [member, said] : gather<actors::WorkerReport>(
           [&](WorkerId id) { return actors::ask_report(worker_, id, kMostActors); })) {
    ordered_json one = said.ok() ? json_of(said.value())
                                 : ordered_json{{"worker", member.name}, {"silent", said.error().message()}};
    one["host"] = member.host;
    workers.push_back(std::move(one));
  }
  const char* restart = std::getenv("TROUPE_RESTART");
  return text_of_json({{"job", job_},
                       {"program", program_name()},
                       {"asked", worker_.name()},
                       {"restarts", restart && *restart ? std::atoi(restart) : 0},
                       {"workers", workers}});
}

}  // namespace troupe::internal::watch
