#include "collective/mail.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <utility>

#include "actors/calls/call_limit.h"
#include "collective/collective_messages.h"
#include "collective/group_number.h"

namespace troupe::internal::collective {

namespace {

// Withdraws what its rank waits for, if that has not come to anything.
struct Letter {
  std::function<void()> withdraw;
  bool is_dropped_with_future;  // else it goes on then, unless the call that it is part of is cancelled

  static void let_go(void* letter, uint64_t, bool done) {
    const auto* const self = static_cast<const Letter*>(letter);
    if (!done && (self->is_dropped_with_future || (frame().call && frame().call->cancelled())))
      self->withdraw();
  }
};

// What `coming` gives, until somebody gives that up. `in_vain`: what a deadline means.
template <class T, class U>
Future<T> withdrawable(const Future<U>& coming, bool is_dropped_with_future, std::string in_vain,
                       std::function<void()> withdraw) {
  const auto letter = std::make_shared<Letter>(Letter{std::move(withdraw), is_dropped_with_future});
  const Promise<T> promise;
  const Future<T> future = promise.future();
  promise.waits_for({letter, 0, &Letter::let_go});
  future.watch([letter](const Result<T>& r) {
    if (!r.ok()) letter->withdraw();
  });
  coming.on_ready([promise, in_vain = std::move(in_vain)](const Result<U>& r) {
    if (!r.ok() && r.error().kind() == ErrorKind::deadline)
      promise.fail(Error(ErrorKind::deadline, in_vain));
    else if (!r.ok())
      promise.fail(r.error());
    else if constexpr (std::is_void_v<T>)
      promise.set();
    else
      promise.set(r.value());
  });
  return future;
}

// Without the deadline of a call; in an autograd context as its actor, for gradients.
CallFrame frame_of_mail(actors::Worker& worker) {
  CallFrame f{&worker};
  if (!frame().context) return f;
  f.context = frame().context;
  f.actor = frame().actor;
  f.what = frame().what;
  f.nodes = frame().nodes;
  return f;
}

}  // namespace

Mail::Mail(actors::Worker& worker) : worker_(worker) {
  kSend.serve_later(worker, [this](const Ref<actors::Invocation>& call, RankAddress a, Tensor x) {
    mailbox_.arrived({a.group, a.to, a.from, std::move(a.tag), call->from()}, a.use, call, std::move(x));
  });
  kUnsend.serve(worker, [this](const actors::Invocation& call, RankAddress a) {
    mailbox_.unsend({a.group, a.to, a.from, std::move(a.tag), call.from()}, a.use);
  });
  kReceive.serve_later(worker, [this](const Ref<actors::Invocation>& call, RankAddress a, WorkerId sender) {
    if (call->from() != worker_.id()) throw_invalid("collective.receive is for a worker's own ranks");
    mailbox_.wanted({a.group, a.to, a.from, std::move(a.tag), sender}, a.use, call);
  });
}

Future<void> Mail::send(const Group& group, Tensor x, size_t to, const std::string& tag, Duration limit) {
  const RankAddress a{number_of(group), to, group.rank(), tag, ++tickets_};
  const WorkerId receiver = ids_of(group)[to].owner;
  const CallFrameScope scope(frame_of_mail(worker_));
  const auto sending = kSend.within(limit).ask_as(fmt::format("send to rank {} ({})", to, group.label(to)),
                                                  worker_, receiver, a, std::move(x));
  std::string in_vain = fmt::format(
      "[send] rank {} ({}) has not taken it within {}: it calls receive({}, \"{}\"), or this call has more "
      "time by its timeout",
      to, group.label(to), actors::text_of(limit), a.from, tag);
  return withdrawable<void>(sending, false, std::move(in_vain), [this, a, receiver] {
    CallFrameScope alone({&worker_});
    (void)kUnsend.tell(worker_, receiver, a);
  });
}

Future<Tensor> Mail::receive(const Group& group, size_t from, const std::string& tag, Duration limit) {
  const RankAddress a{number_of(group), group.rank(), from, tag, ++tickets_};
  const WorkerId sender = ids_of(group)[from].owner;
  worker_.watch(sender);
  const CallFrameScope scope(frame_of_mail(worker_));
  const auto coming = kReceive.within(limit).ask_as(
      fmt::format("receive from rank {} ({})", from, group.label(from)), worker_, worker_.id(), a, sender);
  std::string in_vain = fmt::format(
      "[receive] rank {} ({}) has not sent it within {}: it calls send(x, {}, \"{}\"), or this call has more "
      "time by its timeout",
      from, group.label(from), actors::text_of(limit), a.to, tag);
  const auto came = withdrawable<Tensor>(coming, true, std::move(in_vain), [this, a, sender] {
    mailbox_.withdraw({a.group, a.to, a.from, a.tag, sender}, a.use);
  });
  if (const auto why = worker_.members().loss(sender)) mailbox_.lost(sender, *why);
  return came;
}

}  // namespace troupe::internal::collective
