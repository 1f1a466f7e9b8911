// RRef<T>: a reference to an actor of type T, wherever it lives. Calling it is a message.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "actors/call_scope.h"
#include "actors/cell/methods.h"
#include "actors/worker/log_not_sent.h"
#include "core/graph/copy_on_write.h"
#include "rref/remote.h"

namespace troupe {

template <class T>
class RRef;

namespace internal::rref {

/// A Value of the parameter type P from an argument that converts to it.
template <class P, class A>
Value argument(A&& a) {
  if constexpr (std::is_same_v<std::decay_t<A>, P>)
    return Codec<P>::to(std::forward<A>(a));
  else
    return Codec<P>::to(P(std::forward<A>(a)));
}

/// An argument of type A, or the value of a future A, can be a parameter P. (A pointer is no number.)
template <class A, class P>
concept Fits = std::is_convertible_v<typename IsFuture<std::decay_t<A>>::Value, P> ||
    (std::is_constructible_v<P, typename IsFuture<std::decay_t<A>>::Value> && !std::is_arithmetic_v<P>);

template <class Params, size_t... I, class... A>
constexpr bool all_fit(std::index_sequence<I...>, std::tuple<A...>*) {
  return (Fits<A, std::tuple_element_t<I, Params>> && ...);
}

/// Whether method M of T can be called with these; what is wrong is said in one sentence.
template <class T, auto M, class... A>
constexpr bool check_call() {
  using Traits = internal::actors::MethodTraits<std::remove_cv_t<decltype(M)>>;
  if constexpr (!internal::actors::accept<T>(internal::actors::actor_fault<T>()))
    return false;
  else if constexpr (!internal::actors::is_listed<T, M>())
    static_assert(
        internal::actors::kNever<T>,
        "this method is not listed in the actor's `remote`: add it there, methods<..., &T::method>");
  else if constexpr (sizeof...(A) > Traits::kArity)
    static_assert(internal::actors::kNever<T>, "the call has more arguments than the method has parameters");
  else if constexpr (sizeof...(A) + internal::actors::default_count<T, M>() < Traits::kArity)
    static_assert(
        internal::actors::kNever<T>,
        "the call has fewer arguments than the method has parameters (default arguments of methods are given "
        "in `remote`: methods<...>.defaults<&T::method>(value))");
  else if constexpr (!all_fit<typename Traits::Tuple>(std::index_sequence_for<A...>{},
                                                      static_cast<std::tuple<A...>*>(nullptr)))
    static_assert(internal::actors::kNever<T>,
                  "an argument of the call does not convert to the method's parameter");
  else
    return true;
  return false;
}

/// A call that waits for the futures among its arguments, one after the other; for as long as somebody wants
/// its result.
template <class T, auto M, class R, class... A>
class DeferredCall : public std::enable_shared_from_this<DeferredCall<T, M, R, A...>> {
 public:
  explicit DeferredCall(RRef<T> ref) : ref_(std::move(ref)) {}

  template <class... X>
  Future<R> start(X&&... x) {
    const auto result = promise_.future();
    const auto args = std::make_shared<Args>(kept(std::forward<X>(x))...);
    args_ = args;
    promise_.waits_for({args, 0, [](void*, uint64_t, bool) {}});
    next<0>();
    return result;
  }

 private:
  using Args = std::tuple<A...>;
  // Arguments are what they are now, whatever is written to them before the call leaves.
  template <class X>
  static decltype(auto) kept(X&& x) {
    if constexpr (std::is_same_v<std::decay_t<X>, Tensor>) {
      return as_of_now(x);
    } else if constexpr (std::is_same_v<std::decay_t<X>, Tensors>) {
      Tensors all;
      for (const Tensor& t : x) all.push_back(as_of_now(t));
      return all;
    } else {
      return std::forward<X>(x);
    }
  }
  template <size_t N>
  void next() {
    if constexpr (N == sizeof...(A)) {
      send();
    } else if constexpr (IsFuture<std::tuple_element_t<N, Args>>::value) {
      const auto args = args_.lock();
      if (!args) return;
      std::get<N>(*args).watch([self = this->shared_from_this()](const auto& r) {
        if (r.ok())
          self->template next<N + 1>();
        else
          self->promise_.fail(r.error());
      });
    } else {
      next<N + 1>();
    }
  }
  template <class X>
  static decltype(auto) value_of(X& x) {
    if constexpr (IsFuture<X>::value)
      return x.peek()->value();
    else
      return (x);
  }
  void send() {
    const auto args = args_.lock();
    if (!args) return;
    GradMode mode(grad_);
    promise_.template settle<Future<R>>(
        [&] { return std::apply([&](auto&... a) { return ref_.template call<M>(value_of(a)...); }, *args); });
  }

  RRef<T> ref_;
  std::weak_ptr<Args> args_;  // kept by the promise, while its future is wanted
  Promise<R> promise_;
  bool grad_ = grad_enabled();
};

}  // namespace internal::rref

/// A reference to an actor of type T.
template <class T>
class RRef : public internal::rref::RefBase {
 public:
  RRef() = default;
  /// Not for users: spawn and messages make references.
  explicit RRef(internal::rref::HandlePtr handle) : RefBase(std::move(handle)) {}

  /// Calls method M, which is listed in T::remote, with arguments that convert to its parameters. An argument
  /// may be a Future: the call leaves when it is ready, without anybody waiting. Calls from one thread to one
  /// actor are handled in order (those with futures that are not ready: when they leave).
  ///
  /// The future fails with `invalid` (bad arguments), `failed` (the method threw), `deadline`, `disconnected`
  /// (naming the lost worker), `overloaded` (no room, and OnFull::fail), `cancelled` (the cluster was shut
  /// down).
  template <auto M, class... A>
  auto call(A&&... args) const {
    using Traits = internal::actors::MethodTraits<decltype(M)>;
    if constexpr (!internal::rref::check_call<T, M, A...>())
      return Future<typename Traits::Return>();
    else if constexpr ((IsFuture<std::decay_t<A>>::value || ...))
      return call_when_ready<M, Traits>(std::forward<A>(args)...);
    else
      return internal::rref::convert<typename Traits::Return>(
          invoke(internal::actors::method_name<M>(),
                 values<Traits>(std::index_sequence_for<A...>{}, std::forward<A>(args)...)));
  }
  /// a(x): calls the method `forward`.
  template <class... A>
  auto operator()(A&&... args) const {
    if constexpr (requires { &T::forward; }) {
      return call<&T::forward>(std::forward<A>(args)...);
    } else {
      static_assert(
          internal::actors::kNever<T, A...>,
          "this actor has no single method `forward`, which a(x) calls: write a.call<&T::method>(x)");
      return Future<Tensor>();
    }
  }
  /// Calls method M, in order with other calls, but leaves its result where it is: gives a reference to it,
  /// at once. What goes wrong, the call itself included, shows when that reference is used, wherever it went.
  ///
  ///   Remote<Tensor> h = a.remote<&Layer::forward>(x);  // b fetches it from a, without a way through here
  ///   Tensor y = b.call<&Layer::forward_of>(h).get();
  template <auto M, class... A>
  auto remote(A&&... args) const {
    using Traits = internal::actors::MethodTraits<decltype(M)>;
    using R = typename Traits::Return;
    if constexpr ((IsFuture<std::decay_t<A>>::value || ...)) {
      static_assert(internal::actors::kNever<T>,
                    "remote() leaves at once and takes no futures: co_await them, or pass Remote<T> on");
      return Remote<R>();
    } else if constexpr (!internal::rref::check_call<T, M, A...>()) {
      return Remote<R>();
    } else {
      ValueList list = values<Traits>(std::index_sequence_for<A...>{}, std::forward<A>(args)...);
      worker();  // says so if the cluster has been shut down, or the reference is empty
      return Remote<R>(handle()->table().remote(*handle(), internal::actors::method_name<M>(),
                                                Remote<R>::type_name(), std::move(list),
                                                {.timeout = timeout_}));
    }
  }
  /// The same for a caller who wants no answer: it is handled all the same, and does not end with a deadline
  /// or with its caller. An error is logged where it happens. (A call() whose future is dropped is
  /// cancelled.)
  template <auto M, class... A>
  void tell(A&&... args) const {
    using Traits = internal::actors::MethodTraits<decltype(M)>;
    if constexpr (internal::rref::check_call<T, M, A...>())
      invoke(internal::actors::method_name<M>(),
             values<Traits>(std::index_sequence_for<A...>{}, std::forward<A>(args)...), true)
          .on_ready([](const Result<Value>& r) {
            if (!r.ok()) internal::actors::log_not_sent(r.error());
          });
  }
  /// By name, for tools and tests: what the compiler cannot check, the callee does.
  Future<Value> call_by_name(const std::string& method, ValueList args) const {
    return invoke(method, std::move(args));
  }

  /// The same reference, whose calls fail with `deadline` after `timeout` (zero: never; negative: at once).
  RRef with_timeout(Duration timeout) const {
    RRef copy = *this;
    copy.timeout_ = timeout;
    return copy;
  }

  /// The same reference, whose calls do this where too much is on its way already.
  RRef when_full(OnFull choice) const {
    RRef copy = *this;
    copy.on_full_ = choice;
    return copy;
  }

  /// Runs f(T&) with the actor itself, in its mailbox, and gives what it returns: for methods that are not
  /// listed. Only on the owner: `invalid` elsewhere, naming both workers. Nothing is recorded for gradients.
  template <class F>
  auto local(F f) const {
    using R = std::invoke_result_t<F&, T&>;
    Promise<R> promise;
    worker();  // says so if the cluster has been shut down, or the reference is empty
    handle()->table().at_owner(*handle(), [promise, f = std::move(f)](const Result<Actor*>& actor) mutable {
      if (!actor.ok()) return (void)promise.fail(actor.error());
      GradMode mode(false);
      promise.complete_with([&] { return f(static_cast<T&>(*actor.value())); });
    });
    return promise.future();
  }

 private:
  Future<Value> invoke(std::string_view method, ValueList args, bool one_way = false) const {
    if (!*this) throw_invalid("[rref] call of " + std::string(method) + " on an empty reference");
    check_process("call");
    try {
      handle()->table().check(id());
      return worker().call(id(), (type() + "::").append(method), internal::net::method_id(method),
                           std::move(args), {.timeout = timeout_, .one_way = one_way, .on_full = on_full_});
    } catch (...) {
      return Future<Value>::failed(current_error().crossing(("call of " + type() + "::").append(method)));
    }
  }
  template <class Traits, size_t... I, class... A>
  static ValueList values(std::index_sequence<I...>, A&&... args) {
    using Params = typename Traits::Tuple;
    ValueList list;
    list.reserve(sizeof...(A));
    (list.push_back(internal::rref::argument<std::tuple_element_t<I, Params>>(std::forward<A>(args))), ...);
    return list;
  }
  template <class A>
  static void check_argument(const A& a) {
    if constexpr (IsFuture<A>::value)
      if (!a.valid()) throw_invalid("[rref] an argument of the call is an empty future: it was moved from");
  }
  template <auto M, class Traits, class... A>
  auto call_when_ready(A&&... args) const {
    using Deferred = internal::rref::DeferredCall<T, M, typename Traits::Return, std::decay_t<A>...>;
    (check_argument(args), ...);
    const auto future = std::make_shared<Deferred>(*this)->start(std::forward<A>(args)...);
    CallScope::gather(future);
    return future;
  }

  std::optional<Duration> timeout_;  // empty: the worker's
  std::optional<OnFull> on_full_;    // empty: the worker's
};

template <class T>
struct Codec<RRef<T>> {
  static std::string name() { return "reference to " + std::string(internal::actors::type_name<T>()); }
  static Value to(const RRef<T>& r) { return internal::rref::to_value(r); }
  static RRef<T> from(Value v) {
    return RRef<T>(internal::rref::from_value(std::move(v), &name, internal::actors::type_name<T>()));
  }
};

}  // namespace troupe

template <class T>
struct std::hash<troupe::RRef<T>> {
  size_t operator()(const troupe::RRef<T>& ref) const { return ref.hash(); }
};
