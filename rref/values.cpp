// Results that stay where they were computed: the messages around the table of values.
#include "rref/ref_messages.h"
#include "rref/ref_table.h"

namespace troupe::internal::rref {
namespace {

// The type that references to results say which went elsewhere; no type of C++ has such a name.
const std::string kKeptResult = "result of a call";

StoredResultPtr failed(Error error) {
  return std::make_shared<const StoredResult>(
      StoredResult{{}, std::make_unique<const Error>(std::move(error)), nullptr});
}

}  // namespace

HandlePtr RefTable::remote(const Handle& actor, const char* method, const std::string& type, ValueList args,
                           actors::CallOptions options) {
  actors::Worker& worker = this->worker();
  const WorkerId owner = actor.id().owner;
  const bool mine = owner == worker.id(), waits = worker.pending_calls().wait(owner);
  std::unique_lock order(spawn_mutex_, std::defer_lock);
  if (!mine) order.lock();
  const ObjectId id{owner, worker.id(), worker.next_number()};
  std::optional<Error> failure;
  {
    Lock lock(mutex_);
    if (mine)
      owner_.create(id, owner), values_.expect(id);
    else
      holder_.created(id);
    failure = holder_.failure(actor.id());
  }
  auto handle = std::make_shared<Handle>(shared_from_this(), id, type);
  // Numbers come to the owner in their order, also that of a call which others keep from leaving.
  if (!failure && waits && !mine) failure = kExpect.tell(worker, owner, id.number);
  if (!failure) {
    options.one_way = true;
    options.store_as = id.number;
    options.in_line = waits;
    options.held = &actor;
    if (waits && !mine) order.unlock();
    const auto sent = worker.call(actor.id(), actor.type() + "::" + method, net::method_id(method),
                                  std::move(args), options);
    if (waits) {
      sent.on_ready([handle](const Result<Value>& r) {  // until then the result has a reference
        if (!r.ok()) handle->table().not_called(handle->id(), r.error());
      });
      return handle;
    }
    if (const auto* result = sent.peek(); result && !result->ok()) failure = result->error();
  }
  if (failure && mine) finish_value(id, failed(std::move(*failure)));
  if (failure && !mine) {
    Lock lock(mutex_);
    holder_.not_made(id, *failure);
    worker.unheard().failed(id, kUnfetched, *failure);
  }
  return handle;
}

// The owner of a result that is expected tells who asks for it.
void RefTable::not_called(const ObjectId& id, const Error& why) {
  actors::Worker* worker = living_worker();
  if (!worker) return;
  if (id.owner == worker->id())
    finish_value(id, failed(why));
  else
    kNotCalled.tell(*worker, id.owner, id.number, why.kind(), why.message(), why.worker());
}

// The call that makes it has arrived, or will: from now on it has an owner and may be asked for.
void RefTable::expect_value(WorkerId from, uint64_t number) {
  ObjectId id;
  {
    Lock lock(mutex_);
    if (!worker_) return;
    id = {worker_->id(), from, number};
    if (!owner_.create(id, from))
      return;  // the call of an expected one; of a number used twice the first value stays
    values_.expect(id);
  }
  admit(id, nullptr);
}

void RefTable::store_result(actors::Invocation& call, const Result<Value>& result) {
  const ObjectId id{call.worker().id(), call.from(), call.call().store_as};
  finish_value(id, result.ok() ? std::make_shared<const StoredResult>(
                                     StoredResult{result.value(), nullptr, call.cell()})
                               : failed(result.error()));
}

Value RefTable::keep_result(const actors::Invocation& call, const Value& result) {
  actors::Worker& worker = this->worker();
  const ObjectId id{worker.id(), worker.id(), worker.next_number()};
  {
    Lock lock(mutex_);
    owner_.create(id, id.owner), values_.expect(id);
  }
  const auto handle = std::make_shared<Handle>(shared_from_this(), id, kKeptResult);
  finish_value(id, std::make_shared<const StoredResult>(StoredResult{result, nullptr, call.cell()}));
  return Value(RefValue{id, kKeptResult, kNoWorker, 0, handle});
}

HandlePtr RefTable::kept_result(const Value& value) {
  const auto* ref = value.get_if<RefValue>();
  return ref && ref->type == kKeptResult ? std::static_pointer_cast<Handle>(ref->hold) : nullptr;
}

void RefTable::finish_value(const ObjectId& id, StoredResultPtr value) {
  std::vector<Ref<actors::Invocation>> waiting;
  {
    Lock lock(mutex_);
    waiting = values_.finish(id, value);
    if (value->error && worker_) {
      worker_->unheard().failed(id, kUnfetched, *value->error);
      if (!values_.has(id) && waiting.empty()) worker_->unheard().gone(id);
    }
  }
  for (auto& call : waiting) answer(call, value);
}

void RefTable::answer(const Ref<actors::Invocation>& call, const StoredResultPtr& value) {
  if (value->error) {
    if (!call->cancelled()) call->worker().unheard().heard(call->call().target);
    return call->fail(*value->error);
  }
  const uint64_t method = call->call().method;
  if (method == kReady.method) return call->complete(Value());
  if (method != kFetch.method)
    return call->fail(Error(ErrorKind::invalid, "[rref] this is a value, not an actor: it has no methods"));
  call->set_target(value->cell, value->cell->find_method(method));
  value->cell->post([call, value] { call->complete(Value(value->value)); }, actors::DispatchTarget::caller);
}

}  // namespace troupe::internal::rref
