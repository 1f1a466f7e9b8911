// What comes in from other workers: calls, replies, connections.
#include <fmt/format.h>

#include "actors/cell/call_inline.h"
#include "actors/membership/connection_state.h"
#include "actors/worker/guests.h"
#include "actors/worker/worker.h"
#include "core/base/log.h"

namespace troupe::internal::actors {

void Worker::dispatch(const Ref<Invocation>& invocation) {
  net::Call& call = invocation->call();
  try {
    if (call.target.number == 0) {
      auto service = services_.find(call.method);
      if (service == services_.end()) throw_invalid("[call] worker " + name() + " has no such service");
      CallFrame at{this, nullptr, nullptr, call.context, invocation->deadline()};
      at.callback = true;
      CallFrameScope scope(at);
      try {
        if (call.unplaced) throw Error(*call.unplaced);
        for (auto i = interceptors_.rbegin(); i != interceptors_.rend(); ++i)
          (*i)->incoming_call(*invocation);
      } catch (...) {
        // Nobody waits for a reply with this error; some messages must not be lost without a word.
        if (call.id || !service->second.takes_unplaced) throw;
        call.unplaced = current_error();
      }
      return service->second.handler(invocation);
    }
    if (call.unplaced) throw Error(*call.unplaced);
    auto cell = actors_.find(call.target);
    if (!cell) {
      for (auto& i : interceptors_)
        if (i->missing_object(invocation)) return;
      cell = actors_.find(call.target);  // made meanwhile, by a message of another worker
    }
    if (!cell)
      throw_invalid("[call] worker " + name() + " has no object " + std::to_string(call.target.creator) +
                    ":" + std::to_string(call.target.number) + ": it was released, or never made");
    deliver(cell, invocation);
  } catch (...) {
    invocation->fail(current_error());
  }
}

void Worker::deliver(const std::shared_ptr<ActorCell>& cell, const Ref<Invocation>& invocation) {
  try {
    const size_t method = method_of(*cell, invocation->call().method);
    invocation->set_target(cell, method);
    for (auto i = interceptors_.rbegin(); i != interceptors_.rend(); ++i) (*i)->incoming_call(*invocation);
    if (invocation->call().late_number)
      late_calls_.ready(invocation);
    else
      cell->deliver(invocation);
  } catch (...) {
    invocation->fail(current_error());
  }
}

namespace {

// The message alone has the tensors then, so they go as soon as they have been copied to where the caller
// reads them, and not when the caller may have asked for the next ones.
net::Message message_of(net::Reply& reply, const net::DevicePlacing& placing) {
  net::Message message = net::encode(reply, placing);
  if ((message.buffers.empty() && !message.beside) || !reply.result.ok()) return message;
  Value& value = reply.result.value();
  visit_tensors(value, [](Tensor& t) { t = {}; });
  return message;
}

// What a guest may not send. A call that waits for its answer gets one; anything else ends the connection.
void refuse_guest(net::Connection& connection, const net::Packet& packet, const std::string& what) {
  const auto* call = std::get_if<net::Call>(&packet);
  const Error why(ErrorKind::invalid, "[call] " + connection.peer().name +
                                          " is a guest of the cluster, and may not call " + what);
  if (!call || call->id == 0) throw why;
  connection.send(net::encode(net::Reply{call->id, why}));
}

}  // namespace

void Worker::receive_call(net::Connection& connection, net::Call call) {
  const bool wanted = call.id != 0, no_result = call.no_result, to_actor = call.target.number != 0;
  const WorkerId from = connection.peer().id;
  if (call.late_number) late_calls_.arrives(from, call);
  const Ref<Invocation> invocation(
      new Invocation(as_host_, from, std::move(call),
                     [this, wanted, no_result, from, back = connection.share()](net::Reply& reply) {
                       if (!wanted || no_result) calls_.log_unanswered(reply);
                       if (wanted && !no_result) {
                         net::Message message = message_of(reply, placing(from));
                         const auto beside = std::move(message.beside);
                         back->send(std::move(message));
                         if (beside) beside->follow();
                       }
                       if (!no_result) return;
                       try {
                         back->send(net::encode(reply));
                       } catch (const Error&) {  // the connection is gone, and with it the room
                       }
                     }));
  dispatch(invocation);
  // Cancelled by lose(), which finds it listed, or here.
  if (wanted && to_actor && invocation->list(incoming_) && members_.loss(invocation->from()))
    invocation->cancel();
}

void Worker::on_accepted(std::shared_ptr<net::Connection> connection) {
  if (is_guest(connection->peer().id)) extension<Guests>()->came(connection->peer());
  const auto refusal = links_.accepted(connection);
  if (!refusal) return;
  log::warning(name() + ": refused a connection of w" + std::to_string(connection->peer().id) + ": " +
               *refusal);
  connection->set_tag(std::make_shared<ConnectionState>(/*refused=*/true));
  connection->close(*refusal);
}

void Worker::on_message(net::Connection& connection, net::Message message) {
  if (ConnectionState::refused(connection)) return;
  const Traffic::Busy busy(traffic_);
  try {
    const WorkerId from = connection.peer().id;
    const bool guest = is_guest(from);
    net::Sender sender{from, guest ? nullptr : ways_};
    net::Packet packet = net::decode(std::move(message), &sender);
    if (from == kNoWorker) throw_invalid("a call or reply from a peer without a number");
    if (guest) {
      const auto* call = std::get_if<net::Call>(&packet);
      const auto service = call && call->target.number == 0 ? services_.find(call->method) : services_.end();
      const std::string name = service == services_.end() ? "" : service->second.name;
      if (const auto what = extension<Guests>()->refused(connection.peer(), packet, name))
        return refuse_guest(connection, packet, *what);
    }
    if (!parked_.hold(connection, packet, sender)) take_in(connection, std::move(packet));
  } catch (const Error& e) {
    refuse(connection, e);
  }
}

void Worker::refuse(net::Connection& connection, const Error& why) {
  log::error(name() + ": message from " + connection.peer().name + " refused: " + why.what());
  connection.close(std::string("refused a message: ") + why.what());
}

void Worker::take_in(net::Connection& connection, net::Packet&& packet) {
  const WorkerId from = connection.peer().id;
  try {
    if (auto* handling = ConnectionState::of(connection)) handling->begins(packet);
    CallFrameScope scope(callback_frame());
    if (auto* started = std::get_if<net::Started>(&packet)) return calls_.started(started->id, from);
    if (auto* cancel = std::get_if<net::Cancel>(&packet)) {
      if (auto call = incoming_.find(from, cancel->id)) call->cancel();
      return;
    }
    for (auto i = interceptors_.rbegin(); i != interceptors_.rend(); ++i) (*i)->arrived(from, packet);
    if (auto* call = std::get_if<net::Call>(&packet)) return receive_call(connection, std::move(*call));
    auto& reply = std::get<net::Reply>(packet);
    calls_.answered(from, std::move(reply));
  } catch (const Error& e) {
    refuse(connection, e);
  }
}

void Worker::on_closed(net::Connection& connection, const Error& reason) {
  CallFrameScope scope(callback_frame());
  if (!ConnectionState::refused(connection)) links_.closed(connection, reason);
}

void Worker::on_held_up(net::Connection& connection, Duration time) {
  const ConnectionState* handling = ConnectionState::of(connection);
  std::string what = "a callback", advice = "a callback must not block";
  if (handling && handling->method()) {
    const ObjectId target = handling->target(id());
    const auto service = services_.find(handling->method());
    const auto cell = actors_.find(target);
    const size_t method = cell ? cell->find_method(handling->method()) : ActorCell::kUnknown;
    if (!target.number && service != services_.end())
      what = "service " + service->second.name, advice = "a service must not block";
    else
      what = method != ActorCell::kUnknown ? cell->method_label(method) : "a method",
      advice = "list methods that wait for anything but a future as blocking(&T::method)";
  }
  log::warning(name() + ": " + what + " has held up the messages of " + connection.peer().name + " for " +
               fmt::format("{:.1f} s: ", std::chrono::duration<double>(time).count()) + advice);
}

}  // namespace troupe::internal::actors
