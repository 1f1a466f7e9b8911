#include "actors/cell/call_inline.h"

#include <chrono>

#include "actors/cell/actor_cell.h"
#include "core/graph/autocast.h"

namespace troupe::internal::actors {

size_t method_of(const ActorCell& cell, uint64_t id) {
  const size_t found = cell.find_method(id);
  if (found != ActorCell::kUnknown) return found;
  std::string known;
  for (const auto& m : cell.type().methods) known += (known.empty() ? "" : ", ") + m.name;
  throw_invalid("[call] actor " + cell.label() + " has no such method; " + cell.type().name +
                " has: " + known);
}

Future<Value> call_inline(const std::string& method, ValueList args) {
  const auto cell = current_cell();
  if (!cell) throw_invalid("[call] " + method + " can run in place only in an actor; this thread runs none");
  const ActorHost& host = cell->host();
  net::Call call;  // without a number: nobody is sent a reply, and nothing is recorded
  call.target = cell->id();
  call.method = net::method_id(method);
  call.context = frame().context;
  call.grad_enabled = grad_enabled();
  call.halves = static_cast<uint8_t>(autocast_mode());
  if (frame().deadline != TimePoint::max())
    call.timeout_us = std::max<int64_t>(
        1,
        std::chrono::duration_cast<std::chrono::microseconds>(frame().deadline - host.clock.now()).count());
  call.args = std::move(args);
  const size_t index = method_of(*cell, call.method);
  Promise<Value> promise;
  const auto invocation = make_ref<Invocation>(host, host.id, std::move(call), [promise](net::Reply& reply) {
    promise.complete(std::move(reply.result));
  });
  invocation->set_target(cell, index);
  if (auto* const outer = frame().call.get()) invocation->set_within(Ref<Invocation>(outer));
  invocation->run();
  return promise.future();
}

}  // namespace troupe::internal::actors
