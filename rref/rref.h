// RRef<T>: a reference to an actor of type T, wherever it lives. Calling it is a message.
#pragma once
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "actors/methods.h"
#include "rref/ref_table.h"

namespace troupe {

template <class T>
class RRef;

namespace rref {

/// A Value of the parameter type P from an argument that converts to it.
template <class P, class A>
Value argument(A&& a) {
  return Codec<P>::to(P(std::forward<A>(a)));
}

/// A call that waits for the futures among its arguments, one after the other.
template <class T, auto M, class R, class... A>
struct DeferredCall : std::enable_shared_from_this<DeferredCall<T, M, R, A...>> {
  template <class... X>
  DeferredCall(RRef<T> r, X&&... x) : ref(std::move(r)), args(std::forward<X>(x)...) {}
  RRef<T> ref;
  std::tuple<A...> args;
  Promise<R> promise;
  bool grad = grad_enabled();

  template <size_t N>
  void next() {
    if constexpr (N == sizeof...(A)) {
      send();
    } else if constexpr (IsFuture<std::tuple_element_t<N, std::tuple<A...>>>::value) {
      std::get<N>(args).on_ready([self = this->shared_from_this()](const auto& r) {
        if (r.ok())
          self->template next<N + 1>();
        else
          self->promise.fail(r.error());
      });
    } else {
      next<N + 1>();
    }
  }

 private:
  template <class X>
  static decltype(auto) value_of(X& x) {
    if constexpr (IsFuture<X>::value)
      return x.peek()->value();
    else
      return (x);
  }
  void send() {
    GradMode mode(grad);
    std::apply(
        [&](auto&... a) {
          ref.template call<M>(value_of(a)...)
              .on_ready([self = this->shared_from_this()](const Result<R>& r) { self->promise.complete(r); });
        },
        args);
  }
};

}  // namespace rref

/// A value: copy it, keep it, send it in a message. The actor lives while any RRef to it does, anywhere in
/// the cluster. Thread-safe as an int is. An empty one may only be assigned to.
template <class T>
class RRef {
 public:
  RRef() = default;
  /// Not for users: spawn and messages make references.
  explicit RRef(rref::HandlePtr handle) : handle_(std::move(handle)) {}

  /// Calls method M, which is listed in T::remote, with arguments that convert to its parameters. An argument
  /// may be a Future: the call leaves when it is ready, without anybody waiting. Calls from one thread to one
  /// actor are handled in order (those with futures that are not ready: when they leave).
  ///
  /// The future fails with `invalid` (bad arguments), `failed` (the method threw), `deadline`, `disconnected`
  /// (naming the lost worker), `cancelled` (the cluster was shut down).
  template <auto M, class... A>
  auto call(A&&... args) const {
    using Traits = actors::MethodTraits<decltype(M)>;
    static_assert(sizeof...(A) == Traits::kArity, "the method takes another number of arguments");
    if constexpr ((IsFuture<std::decay_t<A>>::value || ...))
      return call_when_ready<M, Traits>(std::forward<A>(args)...);
    else
      return convert<typename Traits::Return>(
          send<M, Traits>(std::index_sequence_for<A...>{}, std::forward<A>(args)...));
  }
  /// By name, for tools and tests: what the compiler cannot check, the callee does.
  Future<Value> call_by_name(const std::string& method, ValueList args) const {
    return invoke(method.c_str(), std::move(args));
  }

  /// The same reference, whose calls fail with `deadline` after `timeout` (zero: never).
  RRef with_timeout(Duration timeout) const {
    RRef copy = *this;
    copy.options_.timeout = timeout;
    return copy;
  }

  explicit operator bool() const { return static_cast<bool>(handle_); }
  WorkerId owner() const { return handle_->id().owner; }
  std::string owner_name() const { return handle_->table().worker().members().name_of(owner()); }
  const ObjectId& id() const { return handle_->id(); }
  const rref::HandlePtr& handle() const { return handle_; }
  /// The same actor?
  bool operator==(const RRef& o) const { return handle_ ? o.handle_ && id() == o.id() : !o.handle_; }

 private:
  Future<Value> invoke(const char* method, ValueList args) const {
    if (!handle_) throw_invalid("[rref] call of " + std::string(method) + " on an empty reference");
    try {
      handle_->table().check(handle_->id());
      return handle_->table().worker().call(handle_->id(), handle_->type() + "::" + method,
                                            net::method_id(method), std::move(args), options_);
    } catch (...) {
      return Future<Value>::failed(current_error().crossing("call of " + handle_->type() + "::" + method));
    }
  }
  template <auto M, class Traits, size_t... I, class... A>
  Future<Value> send(std::index_sequence<I...>, A&&... args) const {
    using Params = typename Traits::Tuple;
    ValueList list;
    list.reserve(sizeof...(A));
    (list.push_back(rref::argument<std::tuple_element_t<I, Params>>(std::forward<A>(args))), ...);
    return invoke(actors::method_name<T, M>(), std::move(list));
  }
  template <class R>
  static Future<R> convert(const Future<Value>& reply) {
    if constexpr (std::is_void_v<R>)
      return reply.then([](const Value&) {});
    else
      return reply.then([](const Value& v) { return actors::from_value<R>(v); });
  }

  template <auto M, class Traits, class... A>
  auto call_when_ready(A&&... args) const {
    using Deferred = rref::DeferredCall<T, M, typename Traits::Return, std::decay_t<A>...>;
    auto deferred = std::make_shared<Deferred>(*this, std::forward<A>(args)...);
    const auto future = deferred->promise.future();
    deferred->template next<0>();
    return future;
  }

  rref::HandlePtr handle_;
  actors::CallOptions options_;
};

/// A reference to an actor of any type, for what works on all of them.
class AnyRef {
 public:
  template <class T>
  AnyRef(const RRef<T>& ref) : handle_(ref.handle()) {
    if (!handle_) throw_invalid("[rref] an empty reference");
  }
  const rref::HandlePtr& handle() const { return handle_; }
  actors::Worker& worker() const { return handle_->table().worker(); }
  /// Calls a method by name.
  Future<Value> call(const std::string& method, ValueList args, actors::CallOptions options = {}) const {
    handle_->table().check(handle_->id());
    return worker().call(handle_->id(), handle_->type() + "::" + method, net::method_id(method),
                         std::move(args), options);
  }

 private:
  rref::HandlePtr handle_;
};

template <class T>
struct Codec<RRef<T>> {
  static std::string name() { return "reference to " + std::string(actors::type_name<T>()); }
  static Value to(RRef<T> r) {
    if (!r) return {};
    return Value(RefValue{r.id(), r.handle()->type(), kNoWorker, 0, r.handle()});
  }
  static RRef<T> from(Value v) {
    if (v.is_null()) return {};
    auto ref = actors::take<RefValue>(v, name());
    if (ref.type != actors::type_name<T>()) actors::mismatch(name(), Value(ref));
    return RRef<T>(std::static_pointer_cast<rref::Handle>(ref.hold));
  }
};

}  // namespace troupe
