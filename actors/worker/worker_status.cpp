// What the callee of a call is doing, for a caller whose deadline is near.
#include <fmt/format.h>

#include <algorithm>

#include "actors/calls/call_limit.h"
#include "actors/worker/open_calls.h"
#include "actors/worker/service.h"

namespace troupe::internal::actors {
namespace {

/// Caller to callee: a call has no answer yet, and its time is nearly over. A sentence about what has become
/// of it.
constexpr Service<std::string(uint64_t call)> kCallStatus{"call.status",
                                                          {.timeout = std::chrono::seconds(1)}};

// Within the lead of the question (lead_of()), so that it is answered either way.
constexpr Duration kNestedStatus = std::chrono::milliseconds(100);

}  // namespace

CallActivity Worker::activity_of(const Invocation& call) const {
  CallActivity out;
  const auto& cell = call.target_cell();
  if (!cell) return out;
  out.actor = cell->label();
  if (const uint64_t late = call.call().late_number) {
    for (const LatePlace& p : late_arguments_.missing(call.from(), late))
      out.what += fmt::format("{}argument {} from {}", out.what.empty() ? "" : ", ", p.index + 1,
                              members_.name_of(p.from));
    out.state = CallActivity::incomplete;
    if (!out.what.empty()) return out;
  }
  const auto since = [&](TimePoint then) { return std::max<Duration>(clock().now() - then, Duration(0)); };
  const CurrentActivity& activity = cell->activity();
  const char* what = activity.what();
  const TimePoint then = activity.since();
  if (activity.call() == &call) {
    out.state = CallActivity::at_work;
    out.time = since(then);
    return out;
  }
  const TimePoint began = call.began();
  if (began == TimePoint::min()) {
    out.state = CallActivity::queued;
    if (what) out.what = what, out.time = since(then);
    return out;
  }
  out.state = CallActivity::waiting;
  out.time = since(began);
  out.what = call.waits_for();
  return out;
}

std::string Worker::status_of(const Invocation& call) const {
  const CallActivity now = activity_of(call);
  const std::string time = text_of(now.time);
  switch (now.state) {
    case CallActivity::unmade:
      return "Its actor, or the value that it asks for, is still being made on " + name() + ".";
    case CallActivity::incomplete:
      return "It has not begun: it waits for " + now.what + ".";
    case CallActivity::at_work:
      return fmt::format("{} is alive and at work on it: the method has been running for {}.", now.actor,
                         time);
    case CallActivity::queued:
      return now.what.empty()
                 ? fmt::format(
                       "It has not begun: {} is not at work on anything else, so it waits for one of the "
                       "{} threads of its process (ClusterOptions::threads).",
                       now.actor, options_.runtime->threads())
                 : fmt::format("It has not begun: its actor has been busy with {} for {}.", now.what, time);
    case CallActivity::waiting:
      break;
  }
  std::string waits = now.what;
  for (const auto& made : pending_.made_by(&call))
    waits += (waits.empty() ? "" : ", ") + made.label + " on " + members_.name_of(made.to);
  return fmt::format("{} began it {} ago, and it waits (co_await) for {}.", now.actor, time,
                     waits.empty() ? "a future" : waits);
}

void Worker::serve_status() {
  kCallStatus.serve_later(
      *this, [this](const Ref<Invocation>& question, uint64_t id) { tell_status(question, id); });
}

// On the thread that delivers: the answer must not wait for what it is about.
void Worker::tell_status(const Ref<Invocation>& question, uint64_t id) {
  const Ref<Cancellable> found = incoming_.find(question->from(), id);
  if (!found)
    return kCallStatus.answer(*question,
                              "Worker " + name() +
                                  " is alive, and has no such call: it has not arrived, or its answer is "
                                  "on its way.");
  const auto& call = static_cast<const Invocation&>(*found);
  const std::string status = status_of(call);
  const auto made = pending_.made_by(&call);
  if (made.empty()) return kCallStatus.answer(*question, status);
  // The reason may lie with a callee of this one, which is asked in its turn.
  const auto complete = [question, status, label = made[0].label](const std::string& more) {
    kCallStatus.answer(*question, more.empty() ? status : fmt::format("{} Of {}: {}", status, label, more));
  };
  if (!made[0].status.empty()) return complete(made[0].status);
  CallFrameScope scope(CallFrame{.worker = this, .callback = true});
  kCallStatus.within(kNestedStatus)
      .ask(*this, made[0].to, made[0].id)
      .on_ready([complete](const Result<std::string>& r) { complete(r.ok() ? r.value() : ""); });
}

void Worker::ask_for_status(uint64_t id, WorkerId to) {
  CallFrameScope scope(CallFrame{.worker = this, .callback = true});
  kCallStatus.ask(*this, to, id).on_ready([this, id](const Result<std::string>& r) {
    if (r.ok()) pending_.note_status(id, r.value());
  });
}

}  // namespace troupe::internal::actors
