#include "actors/worker/call_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "actors/calls/call_limit.h"
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

CallActivity CallStatus::activity_of(const Invocation& call) const {
  CallActivity out;
  const auto& cell = call.target_cell();
  if (!cell) return out;
  out.actor = cell->label();
  if (const uint64_t late = call.call().late_number) {
    for (const LatePlace& p : worker_.late_calls().arguments().missing(call.from(), late))
      out.what += fmt::format("{}argument {} from {}", out.what.empty() ? "" : ", ", p.index + 1,
                              worker_.members().name_of(p.from));
    out.state = CallActivity::incomplete;
    if (!out.what.empty()) return out;
  }
  const auto since = [&](TimePoint then) {
    return std::max<Duration>(worker_.clock().now() - then, Duration(0));
  };
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

std::string CallStatus::text_of(const Invocation& call) const {
  const CallActivity now = activity_of(call);
  const std::string time = actors::text_of(now.time);
  switch (now.state) {
    case CallActivity::unmade:
      return "Its actor, or the value that it asks for, is still being made on " + worker_.name() + ".";
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
                       now.actor, worker_.runtime().threads())
                 : fmt::format("It has not begun: its actor has been busy with {} for {}.", now.what, time);
    case CallActivity::waiting:
      break;
  }
  std::string waits = now.what;
  for (const auto& made : worker_.pending_calls().made_by(&call))
    waits += (waits.empty() ? "" : ", ") + made.label + " on " + worker_.members().name_of(made.to);
  return fmt::format("{} began it {} ago, and it waits (co_await) for {}.", now.actor, time,
                     waits.empty() ? "a future" : waits);
}

void CallStatus::serve() {
  kCallStatus.serve_later(worker_,
                          [this](const Ref<Invocation>& question, uint64_t id) { tell(question, id); });
}

// On the thread that delivers: the answer must not wait for what it is about.
void CallStatus::tell(const Ref<Invocation>& question, uint64_t id) {
  const Ref<Cancellable> found = worker_.incoming_calls().find(question->from(), id);
  if (!found)
    return kCallStatus.answer(*question,
                              "Worker " + worker_.name() +
                                  " is alive, and has no such call: it has not arrived, or its answer is "
                                  "on its way.");
  const auto& call = static_cast<const Invocation&>(*found);
  const std::string status = text_of(call);
  const auto made = worker_.pending_calls().made_by(&call);
  if (made.empty()) return kCallStatus.answer(*question, status);
  // The reason may lie with a callee of this one, which is asked in its turn.
  const auto complete = [question, status, label = made[0].label](const std::string& more) {
    kCallStatus.answer(*question, more.empty() ? status : fmt::format("{} Of {}: {}", status, label, more));
  };
  if (!made[0].status.empty()) return complete(made[0].status);
  CallFrameScope scope(CallFrame{.worker = &worker_, .callback = true});
  kCallStatus.within(kNestedStatus)
      .ask(worker_, made[0].to, made[0].id)
      .on_ready([complete](const Result<std::string>& r) { complete(r.ok() ? r.value() : ""); });
}

void CallStatus::ask(uint64_t id, WorkerId to) {
  CallFrameScope scope(CallFrame{.worker = &worker_, .callback = true});
  kCallStatus.ask(worker_, to, id).on_ready([this, id](const Result<std::string>& r) {
    if (r.ok()) worker_.calls().pending().note_status(id, r.value());
  });
}

}  // namespace troupe::internal::actors
