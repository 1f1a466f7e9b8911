#include "actors/worker/start_task.h"

#include "actors/cell/actor_cell.h"
#include "actors/worker/worker.h"
#include "core/graph/autocast.h"

namespace troupe::internal::actors {

Ref<Invocation> call_of_task(std::function<void(const Error&)> failed) {
  if (!frame().worker)
    throw_invalid("[task] no worker is active here: begin it in an actor, or in a context");
  const ActorHost& host = frame().worker->as_host();
  net::Call call;  // without a number: nobody is sent a reply, and nothing is recorded
  call.context = frame().context;
  call.grad_enabled = grad_enabled();
  call.halves = static_cast<uint8_t>(autocast_mode());
  return make_ref<Invocation>(host, host.id, std::move(call),
                              [failed = std::move(failed)](net::Reply& reply) {
                                if (!reply.result.ok()) failed(reply.result.error());
                              });
}

CallFrame frame_in(Invocation& call) {
  CallFrame in = frame();
  in.call = &call;
  in.scope = nullptr;
  in.packed_weights = nullptr;
  return in;
}

std::optional<InUse> in_use_here() {
  std::optional<InUse> in_use;
  if (auto cell = current_cell()) in_use.emplace(std::move(cell));
  return in_use;
}

Source source_of_task(const Ref<Invocation>& call) {
  return {std::make_shared<Ref<Invocation>>(call), 0, [](void* of, uint64_t, bool done) {
            if (!done) (*static_cast<Ref<Invocation>*>(of))->cancel();
          }};
}

}  // namespace troupe::internal::actors
