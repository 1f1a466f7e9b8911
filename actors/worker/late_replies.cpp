// Results that go straight from the worker that makes them (P) to the worker that uses them (U).
//
// The caller calls U with places for the results of its calls to P (net::LatePlace), and then tells P where
// each of them goes (call.hand_over). P sends it when its method ends (call.argument), and answers the caller
// that it has. If the answer was on its way already, the caller sends the argument itself. U starts the call
// when all are there. (actors/calls/late_call.h, hand_over.h and late_arguments.h are the tables of the
// three.)
#include "actors/worker/late_replies.h"

#include "actors/worker/late_messages.h"
#include "actors/worker/worker.h"
#include "core/graph/node.h"

namespace troupe::internal::actors {
LateReplies::LateReplies(LateCalls& calls, std::string label, std::vector<LateReply> replies,
                         const CallLimit& own)
    : calls_(calls),
      worker_(calls.worker_),
      label_(std::move(label)),
      at_(frame().for_later()),
      grad_(grad_enabled()),
      own_(own),
      callers_end_(frame().deadline),
      state_(replies.size()),
      replies_(std::move(replies)) {
  for (const LateReply& r : replies_) {
    indices_.push_back(r.index);
    if (r.from != worker_.id() && !r.keep) r.future.core().goes_elsewhere();
  }
}

void LateReplies::left(WorkerId to, uint64_t call, uint64_t number) {
  to_ = to;
  call_ = call;
  number_ = number;
  CallFrameScope scope(at_);
  GradMode mode(grad_);
  std::vector<LateReply> replies;  // kept meanwhile: nobody may want them any more
  {
    Lock lock(mutex_);
    replies = replies_;
  }
  for (size_t i = 0; i < replies.size(); ++i) {
    const LateReply& r = replies[i];
    if (!r.future.valid()) continue;
    const auto self = shared_from_this();
    if (r.from != worker_.id() && worker_.calls().pending().hand_over(r.call, [self, i] {
          self->answered(i, LateCall::Answer::handed_over, nullptr);
        }))
      (void)kHandOver.tell(worker_, r.from, r.call, to, number, r.index, r.keep);
    r.future.watch([self, i](const Result<Value>& result) {
      self->answered(i, result.ok() ? LateCall::Answer::value : LateCall::Answer::error, &result);
    });
  }
}

void LateReplies::answered(size_t i, LateCall::Answer answer, const Result<Value>* result) {
  const LateCall::Next next = state_.answered(i, answer);
  if (next.what == LateCall::Next::pass_on) pass_on(i, result->value());
  if (next.what == LateCall::Next::fail) worker_.calls().give_up(call_, result->error());
  for (size_t unwanted : next.unwanted) (void)take(unwanted);
  if (next.whole) begin_time();
}

// The call's own time: what it takes beside its arguments.
void LateReplies::begin_time() {
  if (own_.end == TimePoint::max()) return;
  CallLimit limit = own_;
  limit.made = worker_.clock().now();
  limit.end = limit.made + (own_.end - own_.made);
  if (callers_end_ < limit.end) limit.end = callers_end_, limit.from = CallLimit::From::caller;
  worker_.calls().begin_time(call_, limit);
}

// Its value came to the caller: as if the call left now.
void LateReplies::pass_on(size_t i, const Value& value) {
  GradMode mode(grad_);
  ++calls_.passed_on_;
  if (const auto why = kArgument.tell(worker_, to_, worker_.id(), number_, indices_[i], value))
    worker_.calls().give_up(call_, Error(why->kind(), why->message(), {}, why->worker())
                                       .crossing("call of " + label_ + " from " + worker_.name()));
}

void LateReplies::ended(bool well) {
  (void)state_.ended(well);
  for (size_t i = 0; i < indices_.size(); ++i) {
    const auto reply = take(i);
    // If there is a result, the others will be answered soon, and are not given up.
    if (well && reply.valid() && !reply.is_ready()) reply.on_ready([](const Result<Value>&) {});
  }
}

// The only handle: whoever lets it go gives the call up.
Future<Value> LateReplies::take(size_t i) {
  Lock lock(mutex_);
  return std::exchange(replies_[i].future, {});
}

}  // namespace troupe::internal::actors
