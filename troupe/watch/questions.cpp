#include "troupe/watch/questions.h"

#include <condition_variable>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "actors/worker/open_calls.h"
#include "core/base/mutex.h"
#include "core/base/process_facts.h"
#include "troupe/watch/doors.h"
#include "troupe/watch/report_text.h"

namespace troupe::internal::watch {
namespace {

using nlohmann::ordered_json;

// Labels may hold any bytes, from other processes: what is no UTF-8 is replaced.
std::string text_of_json(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

constexpr int64_t kMuch = 1'000'000;  // bytes that wait for a link

const char* kind_name(Wait::Kind kind) {
  return kind == Wait::silent ? "silent" : kind == Wait::cycle ? "cycle" : "cause";
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
  // The question waits behind all that.
  for (const auto& [to, bytes] : worker_.queued_bytes())
    if (to == member.id && bytes >= kMuch)
      within += ", and the link from " + worker_.name() +
                " to it is slow: " + std::to_string(bytes / 1'000'000) + " MB wait to be taken";
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
  const char* restart = std::getenv("TROUPE_RESTART");
  std::string text = text_of_json({{"job", job_},
                                   {"program", program_name()},
                                   {"asked", worker_.name()},
                                   {"restarts", restart && *restart ? std::atoi(restart) : 0}});
  text.back() = ',';
  text += "\"workers\":[";
  const char* between = "";
  for (const auto& [member, said] :
       gather<std::string>([&](WorkerId id) { return kReportText.ask(worker_, id); })) {
    text += std::exchange(between, ",");
    text += said.ok()
                ? said.value()
                : text_of_json(
                      {{"worker", member.name}, {"silent", said.error().message()}, {"host", member.host}});
  }
  return text + "]}";
}

}  // namespace troupe::internal::watch
