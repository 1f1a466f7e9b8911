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
#include "core/graph/node.h"
#include "rref/invoke.h"
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

/// An argument of type A that stands for a parameter P which is not here: a future, or a reference to a P.
template <class A, class P>
constexpr bool kElsewhere = IsFuture<std::decay_t<A>>::value || std::is_same_v<std::decay_t<A>, Remote<P>>;

template <class Params, class... A, size_t... I>
constexpr bool any_elsewhere(std::index_sequence<I...>) {
  return (kElsewhere<A, std::tuple_element_t<I, Params>> || ...);
}

/// An argument of type A, or what it stands for, can be a parameter P. (A pointer is no number.)
template <class A, class P>
concept Fits = (kElsewhere<A, P> && !IsFuture<std::decay_t<A>>::value) ||
               std::is_convertible_v<typename IsFuture<std::decay_t<A>>::Value, P> ||
               (std::is_constructible_v<P, typename IsFuture<std::decay_t<A>>::Value> &&
                !std::is_arithmetic_v<P>);

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

/// The value that a future A gives, as that of a parameter P.
template <class P, class A>
void add_later(Arguments& to, const Future<A>& a) {
  if (!a.valid()) throw_invalid("[rref] an argument of the call is an empty future: it was moved from");
  to.add_later(a.then([grad = grad_enabled()](const A& value) {
    GradMode mode(grad);
    return argument<P>(value);
  }),
               false);
}
/// Of a future that nobody has any more: the reply itself, if that is what it gives.
template <class P, class A>
void add_later(Arguments& to, Future<A>&& a) {
  if constexpr (std::is_same_v<P, A>)
    if (a.valid())
      if (auto reply = a.template take_origin<Value>(); reply.valid())
        return to.add_later(std::move(reply), true);
  add_later<P>(to, std::as_const(a));
}
extern template void add_later<Tensor, Tensor>(Arguments& to, const Future<Tensor>& a);

/// A reference to that actor, whose calls are part of that JointCall.
template <class T>
RRef<T> within(RRef<T> actor, uint64_t joint_call);

}  // namespace internal::rref

/// A reference to an actor of type T.
template <class T>
class RRef : public internal::rref::RefBase {
 public:
  RRef() = default;
  explicit RRef(internal::rref::HandlePtr handle) : RefBase(std::move(handle)) {}

  /// Calls method M, which is listed in T::remote, with arguments that convert to its parameters. An argument
  /// may be a Future, or a Remote<P> for a parameter P: nobody waits for it. A result that nobody else can
  /// ask for, b(a(x)), goes straight to the callee's worker, and so does what a Remote refers to; with a
  /// future in a variable the call leaves when that is ready. Calls from one thread to one actor are handled
  /// in order (those with futures that are not ready: when they leave).
  ///
  /// The future fails with `invalid` (bad arguments), `failed` (the method threw), `deadline`, `disconnected`
  /// (naming the lost worker), `overloaded` (no room, and OnFull::fail), `cancelled` (the cluster was shut
  /// down).
  template <auto M, class... A>
  auto call(A&&... args) const {
    using Traits = internal::actors::MethodTraits<decltype(M)>;
    if constexpr (!internal::rref::check_call<T, M, A...>())
      return Future<typename Traits::Return>();
    else if constexpr (internal::rref::any_elsewhere<typename Traits::Tuple, A...>(
                           std::index_sequence_for<A...>{}))
      return call_when_ready<M, Traits>(std::index_sequence_for<A...>{}, std::forward<A>(args)...);
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
  ///   Remote<Tensor> h = a.remote<&Layer::forward>(x);
  ///   Tensor y = b(h).get();  // it goes from a's worker to b's, not through here
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
    } else if constexpr (internal::rref::any_elsewhere<typename Traits::Tuple, A...>(
                             std::index_sequence_for<A...>{})) {
      static_assert(
          internal::actors::kNever<T>,
          "remote() leaves at once and takes no Remote<T> for a T: co_await its to_here(), or let the "
          "method take the Remote<T>");
      return Remote<R>();
    } else {
      ValueList list = values<Traits>(std::index_sequence_for<A...>{}, std::forward<A>(args)...);
      return Remote<R>(internal::rref::invoke_remote(handle(), internal::actors::method_name<M>(),
                                                     Remote<R>::type_name(), std::move(list),
                                                     settings_.timeout));
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
    copy.settings_.timeout = timeout;
    return copy;
  }

  /// The same reference, whose calls do this where too much is on its way already.
  RRef when_full(OnFull choice) const {
    RRef copy = *this;
    copy.settings_.on_full = choice;
    return copy;
  }

  /// Runs f(T&) with the actor itself, in its mailbox, and gives what it returns: for methods that are not
  /// listed. Only on the owner: `invalid` elsewhere, naming both workers. Nothing is recorded for gradients.
  template <class F>
  auto local(F f) const {
    using R = std::invoke_result_t<F&, T&>;
    Promise<R> promise;
    internal::rref::at_owner(handle(), [promise, f = std::move(f)](const Result<Actor*>& actor) mutable {
      if (!actor.ok()) return (void)promise.fail(actor.error());
      GradMode mode(false);
      promise.complete_with([&] { return f(static_cast<T&>(*actor.value())); });
    });
    return promise.future();
  }

 private:
  Future<Value> invoke(std::string_view method, ValueList args, bool one_way = false) const {
    return internal::rref::invoke(handle(), method, std::move(args), settings_, one_way);
  }
  template <class Traits, size_t... I, class... A>
  static ValueList values(std::index_sequence<I...>, A&&... args) {
    if constexpr (sizeof...(A) == 0)
      return {};
    else
      return internal::list_of({internal::rref::argument<std::tuple_element_t<I, typename Traits::Tuple>>(
          std::forward<A>(args))...});
  }
  template <class P, class A>
  static void add_argument(internal::rref::Arguments& to, A&& a) {
    if constexpr (std::is_same_v<std::decay_t<A>, Remote<P>>) {
      add_argument<P>(to, a.to_here());
    } else if constexpr (IsFuture<std::decay_t<A>>::value) {
      internal::rref::add_later<P>(to, std::forward<A>(a));
    } else {
      to.add(internal::rref::argument<P>(std::forward<A>(a)));
    }
  }
  template <auto M, class Traits, size_t... I, class... A>
  auto call_when_ready(std::index_sequence<I...>, A&&... args) const {
    internal::rref::Arguments all;
    (add_argument<std::tuple_element_t<I, typename Traits::Tuple>>(all, std::forward<A>(args)), ...);
    return internal::rref::convert<typename Traits::Return>(internal::rref::invoke_when_ready(
        handle(), internal::actors::method_name<M>(), std::move(all), settings_));
  }

  template <class U>
  friend RRef<U> internal::rref::within(RRef<U> actor, uint64_t joint_call);
  internal::rref::CallSettings settings_;
};

template <class T>
RRef<T> internal::rref::within(RRef<T> actor, uint64_t joint_call) {
  actor.settings_.joint = joint_call;
  return actor;
}

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
