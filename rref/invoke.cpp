#include "rref/invoke.h"

#include <memory>
#include <string>

#include "actors/call_scope.h"
#include "actors/worker/worker.h"
#include "core/base/fork.h"
#include "core/graph/autocast.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/node.h"
#include "rref/ref_base.h"
#include "rref/ref_table.h"

namespace troupe::internal::rref {

namespace {

class DeferredCall : public std::enable_shared_from_this<DeferredCall> {
 public:
  DeferredCall(HandlePtr actor, std::string_view method, const CallSettings& settings)
      : actor_(std::move(actor)), method_(method), settings_(settings) {}

  Future<Value> start(Arguments&& arguments) {
    const auto result = promise_.future();
    const auto kept = std::make_shared<Arguments>(std::move(arguments));
    arguments_ = kept;
    promise_.waits_for({kept, 0, [](void*, uint64_t, bool) {}});
    next(0);
    return result;
  }

 private:
  void next(size_t i) {
    const auto arguments = arguments_.lock();
    if (!arguments) return;
    if (i == arguments->later.size()) return send(*arguments);
    arguments->later[i].value.watch([self = shared_from_this(), i](const Result<Value>& r) {
      if (r.ok())
        self->next(i + 1);
      else
        self->promise_.fail(r.error());
    });
  }
  void send(Arguments& arguments) {
    for (const auto& l : arguments.later) arguments.values[l.place] = l.value.peek()->value();
    const ThreadModeScope modes(modes_);
    promise_.settle<Future<Value>>(
        [&] { return invoke(actor_, method_, std::move(arguments.values), settings_); });
  }

  const HandlePtr actor_;
  const std::string method_;
  const CallSettings settings_;
  const ThreadModes modes_;
  std::weak_ptr<Arguments> arguments_;  // kept by the promise, while its future is wanted
  Promise<Value> promise_;
};

// What the call leaves without: none if no result can go straight, so that nothing is gained.
std::vector<actors::LateReply> replies_of(const Handle& actor, const Arguments& arguments) {
  std::vector<actors::LateReply> out;
  bool straight = false;
  try {
    const actors::Worker& worker = actor.table().worker();
    for (const auto& l : arguments.later) {
      const auto index = static_cast<uint32_t>(l.place);
      auto reply = l.is_reply ? worker.late_calls().reply(l.value, index, actor.id().owner) : std::nullopt;
      straight |= reply.has_value();
      out.push_back(reply ? std::move(*reply) : actors::LateReply{l.value, index, worker.id()});
    }
  } catch (const Error&) {  // the cluster has been shut down: the call itself says so
    return {};
  }
  if (!straight) out.clear();
  return out;
}

Future<Value> call(const HandlePtr& actor, std::string_view method, ValueList args,
                   actors::CallOptions options) {
  if (!actor) throw_invalid("[rref] call of " + std::string(method) + " on an empty reference");
  check_process("call");
  std::string label = (actor->type() + "::").append(method);
  try {
    actor->table().check(actor->id());
    options.held = actor.get();
    return actor->table().worker().call(actor->id(), label, net::method_id(method), std::move(args),
                                        std::move(options));
  } catch (...) {
    return Future<Value>::failed(current_error().crossing("call of " + label));
  }
}

}  // namespace

Future<Value> invoke(const HandlePtr& actor, std::string_view method, ValueList args,
                     const CallSettings& settings, bool one_way) {
  return call(actor, method, std::move(args),
              {.timeout = settings.timeout,
               .one_way = one_way,
               .on_full = settings.on_full,
               .joint = settings.joint});
}

Arguments::Arguments() = default;
Arguments::Arguments(Arguments&&) noexcept = default;
Arguments::~Arguments() = default;

void Arguments::add(Value value) { values.push_back(std::move(value)); }

void Arguments::add_later(Future<Value> value, bool is_reply) {
  later.push_back({values.size(), std::move(value), is_reply});
  values.emplace_back();
}

Future<Value> invoke_when_ready(const HandlePtr& actor, std::string_view method, Arguments&& arguments,
                                const CallSettings& settings) {
  if (actor) {
    if (auto late = replies_of(*actor, arguments); !late.empty()) {
      arguments.later.clear();  // the only handles are with the call
      return call(actor, method, std::move(arguments.values),
                  {.timeout = settings.timeout,
                   .on_full = settings.on_full,
                   .late = std::move(late),
                   .joint = settings.joint});
    }
  }
  visit_tensors(arguments.values, [](Tensor& t) { t = internal::as_of_now(t); });
  auto result = std::make_shared<DeferredCall>(actor, method, settings)->start(std::move(arguments));
  CallScope::gather(result);
  return result;
}

HandlePtr invoke_remote(const HandlePtr& actor, const char* method, const std::string& type, ValueList args,
                        std::optional<Duration> timeout) {
  (void)RefBase(actor).worker();  // says so if the cluster has been shut down, or the reference is empty
  return actor->table().remote(*actor, method, type, std::move(args), {.timeout = timeout});
}

Future<Value> fetch(const HandlePtr& value, std::optional<Duration> timeout) {
  if (!value)
    return Future<Value>::failed(Error(ErrorKind::invalid, "[rref] to_here() of an empty reference"));
  return value->table().fetch(*value, {.timeout = timeout});
}

void at_owner(const HandlePtr& actor, std::function<void(const Result<Actor*>&)> f) {
  (void)RefBase(actor).worker();  // says so if the cluster has been shut down, or the reference is empty
  actor->table().at_owner(*actor, std::move(f));
}

}  // namespace troupe::internal::rref
