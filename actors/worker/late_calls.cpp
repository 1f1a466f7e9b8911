#include "actors/worker/late_calls.h"

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

std::optional<LateReply> LateCalls::reply(const Future<Value>& reply, uint32_t index, WorkerId to,
                                          bool keep) const {
  const auto call = worker_.canceller_->call_of(reply.core());
  if (!call) return {};
  const auto from = worker_.calls().pending().could_hand_over(*call);
  if (!from || *from == worker_.id() || to == worker_.id()) return {};
  // What devices the tensors go to is said for pairs of workers.
  const auto mapped = [&](WorkerId w) {
    return worker_.options_.device_maps.contains(worker_.members_.name_of(w));
  };
  if (*from != to && !worker_.options_.device_maps.empty() && (mapped(*from) || mapped(to))) return {};
  return LateReply{reply, index, *from, *call, keep};
}

void LateCalls::send(WorkerId to, net::Call& call) {
  std::lock_guard order(order_);
  call.late_number = ++numbers_[to];
  worker_.send(to, net::encode(call, worker_.placing(to)));
}

// ---- the worker that makes an argument

bool LateCalls::pass_on(const HandOver& how, Invocation& call, const Value& value, net::Reply& reply) {
  if (how.context != call.call().context || call.call().no_result || call.call().store_as) return false;
  CallFrame at{.worker = &worker_, .actor = call.cell().get(), .context = how.context};
  at.callback = true;
  at.what = frame().what;
  CallFrameScope scope(at);
  GradMode mode(how.grad_enabled && call.call().grad_enabled);
  if (kArgument.tell(worker_, how.to, call.from(), how.number, how.index, value)) return false;
  ++sent_;
  reply.handed_over = true;
  if (how.keep)
    for (const auto& i : worker_.as_host().interceptors)
      if (auto reference = i->keep_result(call, value)) reply.result = std::move(*reference);
  return true;
}

// ---- the worker that is called

void LateCalls::install() {
  kHandOver.serve(worker_, [this](Invocation& message, uint64_t id, WorkerId to, uint64_t number,
                                  uint32_t index, bool keep) {
    const net::Call& call = message.call();
    if (const auto running = worker_.incoming_calls().find(message.from(), id))
      static_cast<Invocation&>(*running).hand_over({.to = to,
                                                    .number = number,
                                                    .index = index,
                                                    .context = call.context,
                                                    .grad_enabled = call.grad_enabled,
                                                    .keep = keep});
  });
  kArgument.serve(worker_, [this](Invocation& message, WorkerId caller, uint64_t number, uint32_t index,
                                  Value value) {
    LateArgument argument{.index = index, .bytes = bytes_of(value), .message = Ref<Cancellable>(&message)};
    if (const auto& why = message.call().unplaced)
      argument.value = *why;  // the call that waits for it fails
    else
      argument.value = std::move(value);
    enter(arguments_.came(message.from(), caller, number, std::move(argument)));
  });
  worker_.add_metrics([this](Worker::Metrics& m) {
    m["late_calls"] = static_cast<int64_t>(arguments_.calls());
    m["early_arguments"] = static_cast<int64_t>(arguments_.early());
    m["arguments_sent"] = sent_;
    m["arguments_passed_on_sent"] = passed_on_;
  });
}

void LateCalls::arrives(WorkerId from, const net::Call& call) {
  if (!arguments_.arrived(from, call.late_number, call.late))
    throw_invalid("[call] late call " + std::to_string(call.late_number) + " came twice, or out of order");
}

void LateCalls::ready(const Ref<Invocation>& call) {
  const uint64_t number = call->call().late_number;
  // One that dies before it has connected is noticed by nobody else.
  for (const LatePlace& place : call->call().late) worker_.watch(place.from);
  enter(arguments_.ready(call->from(), number, call));
  if (call->cancelled() && arguments_.give_up(call->from(), number))
    call->fail(Error(ErrorKind::cancelled, "[call] the caller wants no result any more"));
}

void LateCalls::lost(WorkerId id, const Error& why) {
  for (auto& whole : arguments_.lost(id, why)) enter(std::move(whole));
}

void LateCalls::enter(LateArguments::Whole whole) {
  if (!whole.call) return;
  const Ref<Invocation> call(static_cast<Invocation*>(whole.call.get()));
  if (whole.error) return call->fail(std::move(*whole.error));
  for (LateArgument& a : whole.arguments) call->call().args[a.index] = std::move(a.value).value();
  call->begin_time();
  call->cell()->deliver(call);
}

}  // namespace troupe::internal::actors
