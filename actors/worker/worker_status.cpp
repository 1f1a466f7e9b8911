// What the callee of a call is doing, for a caller whose deadline is near.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "actors/calls/call_limit.h"
#include "actors/worker/service.h"

namespace troupe::internal::actors {
namespace {

/// Caller to callee: a call has no answer yet, and its time is nearly over, or somebody asks what is waited
/// for. A sentence about what has become of it.
constexpr Service<std::string(uint64_t call)> kCallStatus{"call.status",
                                                          {.timeout = std::chrono::seconds(1)}};

// Within the lead of the question (lead_of()), so that it is answered either way.
constexpr Duration kNestedStatus = std::chrono::milliseconds(100);

// Calls whose callees tell_waits() asks.
constexpr size_t kMostQuestions = 64;

// A time of the same clock may be a little later: another thread's.
std::string ago(const Worker& worker, TimePoint since) {
  return text_of(std::max<Duration>(worker.clock().now() - since, Duration(0)));
}

}  // namespace

std::string Worker::status_of(const Invocation& call) const {
  const auto& cell = call.target_cell();
  if (!cell) return "Its actor, or the value that it asks for, is still being made on " + name() + ".";
  if (const uint64_t late = call.call().late_number) {
    std::string waits;
    for (const LatePlace& p : late_arguments_.missing(call.from(), late))
      waits += fmt::format("{}argument {} from {}", waits.empty() ? "" : ", ", p.index + 1,
                           members_.name_of(p.from));
    if (!waits.empty()) return "It has not begun: it waits for " + waits + ".";
  }
  const CurrentActivity& activity = cell->activity();
  const char* what = activity.what();
  const TimePoint since = activity.since();
  if (activity.call() == &call)
    return fmt::format("{} is alive and at work on it: the method has been running for {}.", cell->label(),
                       ago(*this, since));
  const TimePoint began = call.began();
  if (began == TimePoint::min())
    return what ? fmt::format("It has not begun: its actor has been busy with {} for {}.", what,
                              ago(*this, since))
                : fmt::format(
                      "It has not begun: {} is not at work on anything else, so it waits for one of the "
                      "{} threads of its process (ClusterOptions::threads).",
                      cell->label(), options_.runtime->threads());
  std::string waits = call.waits_for();
  for (const auto& made : pending_.made_by(&call))
    waits += (waits.empty() ? "" : ", ") + made.label + " on " + members_.name_of(made.to);
  return fmt::format("{} began it {} ago, and it waits (co_await) for {}.", cell->label(), ago(*this, began),
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

void Worker::tell_waits(std::function<void(std::vector<Wait>)> done) {
  struct Answers {
    std::vector<Wait> waits;  // each by its own question
    std::atomic<size_t> left{1};
    std::function<void(std::vector<Wait>)> done;
    void one() {
      if (left.fetch_sub(1) == 1) done(std::move(waits));
    }
  };
  auto answers = std::make_shared<Answers>();
  answers->done = std::move(done);
  std::vector<PendingCalls::Made> calls;
  for (auto& call : pending_.all())
    if (!call.label.starts_with("worker.") && call.label != kCallStatus.name)
      calls.push_back(std::move(call));
  for (const auto& call : calls) {
    const Duration age = call.when == TimePoint() ? Duration(0) : clock().now() - call.when;
    answers->waits.push_back(
        {call.label, call.to, std::max<Duration>(age, Duration(0)),
         call.local ? status_of(static_cast<const Invocation&>(*call.local)) : call.status});
  }
  CallFrameScope scope(CallFrame{.worker = this, .callback = true});
  for (size_t i = 0; i < std::min(calls.size(), kMostQuestions); ++i) {
    if (calls[i].local || !calls[i].sent) continue;
    ++answers->left;
    kCallStatus.ask(*this, calls[i].to, calls[i].id).on_ready([answers, i](const Result<std::string>& r) {
      if (r.ok()) answers->waits[i].status = r.value();
      answers->one();
    });
  }
  answers->one();
}

void Worker::ask_for_status(uint64_t id, WorkerId to) {
  CallFrameScope scope(CallFrame{.worker = this, .callback = true});
  kCallStatus.ask(*this, to, id).on_ready([this, id](const Result<std::string>& r) {
    if (r.ok()) pending_.note_status(id, r.value());
  });
}

}  // namespace troupe::internal::actors
