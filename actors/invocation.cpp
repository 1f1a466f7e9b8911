#include "actors/invocation.h"

#include "actors/cell.h"
#include "actors/worker.h"
#include "core/node.h"

namespace troupe::actors {

Invocation::Invocation(Worker& worker, WorkerId from, net::Call call, Deliver deliver)
    : worker_(worker),
      from_(from),
      call_(std::move(call)),
      deliver_(std::move(deliver)),
      deadline_(call_.timeout_us > 0 ? worker.clock().now() + std::chrono::microseconds(call_.timeout_us)
                                     : TimePoint::max()) {}

Invocation::~Invocation() {
  if (!completed_) fail(Error(ErrorKind::failed, "[call] was dropped without a reply"));
}

void Invocation::set_target(std::shared_ptr<ActorCell> cell, size_t method) {
  cell_ = std::move(cell);
  method_ = method;
}

void Invocation::fail(Error error) {
  if (cell_) error = std::move(error).crossing(cell_->method_label(method_));
  complete(Result<Value>(std::move(error)));
}

void Invocation::complete(Result<Value> result) {
  if (completed_.exchange(true)) return;
  if (call_.keep) {
    for (auto& i : worker_.interceptors_) i->keep_result(*this, result);
    return;
  }
  net::Reply reply;
  reply.id = call_.id;
  reply.result = std::move(result);
  try {
    deliver(reply);
  } catch (...) {
    Error error = current_error();
    if (cell_) error = std::move(error).crossing(cell_->method_label(method_));
    reply.result = Result<Value>(std::move(error));  // this result cannot travel; say so instead
    reply.link = {};
    try {
      deliver_(reply);
    } catch (const Error&) {  // the caller is gone, or we are
    }
  }
}

void Invocation::deliver(net::Reply& reply) {
  const auto& interceptors = worker_.interceptors_;
  size_t prepared = 0;  // interceptors that have to undo if the reply is not sent
  try {
    for (; call_.id && prepared < interceptors.size(); ++prepared)
      interceptors[prepared]->outgoing_reply(*this, reply);
    deliver_(reply);
  } catch (...) {
    for (size_t i = 0; i < prepared; ++i) interceptors[i]->reply_not_sent(*this, reply);
    throw;
  }
}

void Invocation::run() {
  FrameScope scope({&worker_, cell_.get(), &cell_->method_label(method_), call_.context, deadline_});
  GradMode mode(call_.grad_enabled);
  const TimePoint start = worker_.clock().now();
  if (start >= deadline_)
    return fail(
        Error(ErrorKind::deadline, "[call] the caller's deadline had passed before the method could start"));
  try {
    Actor& actor = cell_->object();
    cell_->method(method_).invoke(actor, *this);
  } catch (...) {
    fail(current_error());
  }
  cell_->pace(method_).note(worker_.clock().now() - start);
}

}  // namespace troupe::actors
