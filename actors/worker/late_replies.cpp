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
namespace {

size_t bytes_of(Value& value) {
  net::Call call;
  call.args.push_back(std::move(value));
  const size_t bytes = net::packet_bytes(call);
  value = std::move(call.args[0]);
  return bytes;
}

}  // namespace

// ---- the caller

LateReplies::LateReplies(Worker& worker, std::string label, std::vector<LateReply> replies,
                         const CallLimit& own)
    : worker_(worker),
      label_(std::move(label)),
      at_(frame().for_later()),
      grad_(grad_enabled()),
      own_(own),
      callers_end_(frame().deadline),
      state_(replies.size()),
      replies_(std::move(replies)) {
  for (const LateReply& r : replies_) {
    indices_.push_back(r.index);
    if (r.from != worker.id() && !r.keep) r.future.core().goes_elsewhere();
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
    if (r.from != worker_.id() && worker_.pending_.hand_over(r.call, [self, i] {
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
  if (next.what == LateCall::Next::fail) worker_.fail_late(call_, result->error());
  for (size_t unwanted : next.unwanted) (void)take(unwanted);
  if (next.whole) worker_.begin_late(call_, own_, callers_end_);
}

// Its value came to the caller: as if the call left now.
void LateReplies::pass_on(size_t i, const Value& value) {
  GradMode mode(grad_);
  ++worker_.arguments_passed_on_;
  if (const auto why = kArgument.tell(worker_, to_, worker_.id(), number_, indices_[i], value))
    worker_.fail_late(call_, Error(why->kind(), why->message(), {}, why->worker())
                                 .crossing("call of " + label_ + " from " + worker_.name()));
}

void LateReplies::ended(bool well) {
  (void)state_.ended(well);
  for (size_t i = 0; i < indices_.size(); ++i) {
    const auto reply = take(i);
    // With a result, the others will be answered soon, and are not given up.
    if (well && reply.valid() && !reply.is_ready()) reply.on_ready([](const Result<Value>&) {});
  }
}

// The only handle: whoever lets it go gives the call up.
Future<Value> LateReplies::take(size_t i) {
  Lock lock(mutex_);
  return std::exchange(replies_[i].future, {});
}

std::optional<LateReply> Worker::late_reply(const Future<Value>& reply, uint32_t index, WorkerId to,
                                            bool keep) const {
  const auto call = canceller_->call_of(reply.core());
  if (!call) return {};
  const auto from = pending_.could_hand_over(*call);
  if (!from || *from == id() || to == id()) return {};
  // What devices the tensors go to is said for pairs of workers.
  const auto mapped = [&](WorkerId w) { return options_.device_maps.contains(members_.name_of(w)); };
  if (*from != to && !options_.device_maps.empty() && (mapped(*from) || mapped(to))) return {};
  return LateReply{reply, index, *from, *call, keep};
}

void Worker::send_late(WorkerId to, net::Call& call, const net::DevicePlacing& placing) {
  std::lock_guard order(late_order_);
  call.late_number = ++late_numbers_[to];
  send(to, net::encode(call, placing));
}

void Worker::fail_late(uint64_t call, const Error& why) {
  const auto given_up = pending_.give_up(call);
  if (!given_up) return;
  tell(*given_up);
  given_up->call.promise.fail(why);
}

void Worker::begin_late(uint64_t call, CallLimit limit, TimePoint callers_end) {
  if (limit.end == TimePoint::max()) return;
  const Duration time = limit.end - limit.made;
  limit.made = clock().now();
  limit.end = limit.made + time;
  if (callers_end < limit.end) limit.end = callers_end, limit.from = CallLimit::From::caller;
  if (!pending_.begin(call, limit)) return;
  Lock lock(timer_mutex_);
  timer_poked_ = true;
  timer_wake_.notify_one();
}

// ---- the worker that makes an argument

bool Worker::pass_on(const HandOver& how, Invocation& call, const Value& value, net::Reply& reply) {
  if (how.context != call.call().context || call.call().no_result || call.call().store_as) return false;
  CallFrame at{.worker = this, .actor = call.cell().get(), .context = how.context};
  at.callback = true;
  at.what = frame().what;
  CallFrameScope scope(at);
  GradMode mode(how.grad_enabled && call.call().grad_enabled);
  if (kArgument.tell(*this, how.to, call.from(), how.number, how.index, value)) return false;
  ++arguments_sent_;
  reply.handed_over = true;
  if (how.keep)
    for (const auto& i : interceptors_)
      if (auto reference = i->keep_result(call, value)) reply.result = std::move(*reference);
  return true;
}

// ---- the worker that is called

void Worker::install_late_arguments() {
  kHandOver.serve(*this, [this](Invocation& message, uint64_t id, WorkerId to, uint64_t number,
                                uint32_t index, bool keep) {
    const net::Call& call = message.call();
    if (const auto running = incoming_.find(message.from(), id))
      static_cast<Invocation&>(*running).hand_over({.to = to,
                                                    .number = number,
                                                    .index = index,
                                                    .context = call.context,
                                                    .grad_enabled = call.grad_enabled,
                                                    .keep = keep});
  });
  kArgument.serve(*this, [this](Invocation& message, WorkerId caller, uint64_t number, uint32_t index,
                                Value value) {
    LateArgument argument{.index = index, .bytes = bytes_of(value), .message = Ref<Cancellable>(&message)};
    if (const auto& why = message.call().unplaced)
      argument.value = *why;  // the call that waits for it fails
    else
      argument.value = std::move(value);
    enter(late_arguments_.came(message.from(), caller, number, std::move(argument)));
  });
  add_metrics([this](Metrics& m) {
    m["late_calls"] = static_cast<int64_t>(late_arguments_.calls());
    m["early_arguments"] = static_cast<int64_t>(late_arguments_.early());
    m["arguments_sent"] = arguments_sent_;
    m["arguments_passed_on_sent"] = arguments_passed_on_;
  });
}

void Worker::arrives_late(WorkerId from, const net::Call& call) {
  if (!late_arguments_.arrived(from, call.late_number, call.late))
    throw_invalid("[call] late call " + std::to_string(call.late_number) + " came twice, or out of order");
}

void Worker::ready_late(const Ref<Invocation>& call) {
  const uint64_t number = call->call().late_number;
  // One that dies before it has connected is noticed by nobody else.
  for (const LatePlace& place : call->call().late) watch(place.from);
  enter(late_arguments_.ready(call->from(), number, call));
  if (call->cancelled() && late_arguments_.give_up(call->from(), number))
    call->fail(Error(ErrorKind::cancelled, "[call] the caller wants no result any more"));
}

void Worker::enter(LateArguments::Whole whole) {
  if (!whole.call) return;
  const Ref<Invocation> call(static_cast<Invocation*>(whole.call.get()));
  if (whole.error) return call->fail(std::move(*whole.error));
  for (LateArgument& a : whole.arguments) call->call().args[a.index] = std::move(a.value).value();
  call->begin_time();
  call->cell()->deliver(call);
}

}  // namespace troupe::internal::actors
