// How messages become method calls: the ActorType of a C++ class, and what its list of methods must keep to.
#pragma once
#include <string>
#include <tuple>
#include <utility>

#include "actors/call_scope.h"
#include "actors/cell/actor_type.h"
#include "actors/cell/any_task.h"
#include "actors/cell/invocation.h"
#include "actors/cell/method_list.h"
#include "core/async/future_combinators.h"
#include "core/codec/codec.h"

namespace troupe {
namespace internal::actors {

template <class...>
constexpr bool kNever = false;

// ---- what a class must keep to; what is wrong with it is found first, and then said in one sentence near
// the user's line

enum class Fault {
  none,
  no_actor,
  no_remote,
  same_name,
  reference,
  field,
  parameter,
  future,
  result,
  not_by_value,
  blocking,
  names,
  argument,
  no_constructor,
};

template <class T, auto E>
constexpr Fault method_fault() {
  using Traits = MethodTraits<std::remove_cv_t<decltype(MethodEntry<E>::kPointer)>>;
  using Return = typename Traits::Return;
  if constexpr (!Traits::kTakesAll) return Fault::reference;
  if constexpr (Traits::kOpaqueFields) return Fault::field;
  if constexpr (!Traits::kArgumentsSerializable) return Fault::parameter;
  if constexpr (IsFuture<Return>::value) return Fault::future;
  if constexpr (!std::is_void_v<Return> && !Serializable<std::decay_t<Return>>) return Fault::result;
  if constexpr (Traits::kTask && !Traits::kByValue) return Fault::not_by_value;
  if constexpr (Traits::kTask && MethodEntry<E>::kBlocks) return Fault::blocking;
  if constexpr (MethodEntry<E>::kParameters.size() != 0 &&
                MethodEntry<E>::kParameters.size() != Traits::kArity)
    return Fault::names;
  return Fault::none;
}

template <class T, class... A>
constexpr Fault constructor_fault() {
  if constexpr ((kOpaqueFields<A> || ...)) return Fault::field;
  if constexpr (!(Serializable<A> && ...)) return Fault::argument;
  if constexpr (!std::is_constructible_v<T, A...>) return Fault::no_constructor;
  return Fault::none;
}

template <class T, auto E>
constexpr Fault entry_fault() {
  if constexpr (MethodEntry<E>::kConstructor)
    return []<class... A>(Constructor<A...>) {
      return constructor_fault<T, A...>();
    }(typename MethodEntry<E>::Args{});
  else
    return method_fault<T, E>();
}

template <auto E>
constexpr std::string_view name_of() {
  if constexpr (MethodEntry<E>::kConstructor)
    return {};
  else
    return method_name<MethodEntry<E>::kPointer>();
}

/// What is wrong, and with which entry of the list.
template <Fault F, class Where = void>
struct Finding {
  static constexpr Fault kFault = F;
};

template <class T>
constexpr auto first_fault() {
  return Finding<Fault::none>();
}
template <class T, auto E, auto... Rest>
constexpr auto first_fault() {
  if constexpr (constexpr Fault f = entry_fault<T, E>(); f != Fault::none)
    return Finding<f, MethodConstant<E>>();
  else
    return first_fault<T, Rest...>();
}

template <class T, class Defaulted, auto... E>
constexpr auto list_fault(const MethodList<Defaulted, E...>&) {
  constexpr bool twice = [] {
    const std::array<std::string_view, sizeof...(E)> names{name_of<E>()...};
    for (size_t i = 0; i < names.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (!names[i].empty() && names[i] == names[j]) return true;
    return false;
  }();
  if constexpr (twice)
    return Finding<Fault::same_name>();
  else
    return first_fault<T, E...>();
}

template <class T>
constexpr auto actor_fault() {
  if constexpr (!std::is_base_of_v<Actor, T>)
    return Finding<Fault::no_actor>();
  else if constexpr (!requires { T::remote; })
    return Finding<Fault::no_remote>();
  else
    return list_fault<T>(T::remote);
}

/// True if there is nothing wrong; else says what is.
template <class T, Fault F, class Where>
constexpr bool accept(Finding<F, Where>) {
  static_assert(F != Fault::no_actor, "this type is no actor: derive it from troupe::Actor");
  static_assert(
      F != Fault::no_remote,
      "this actor does not list its remote methods: write, at the end of its public part, static constexpr "
      "auto remote = methods<&T::method>;");
  static_assert(F != Fault::same_name,
                "`remote` lists two methods of one name, which a message could not tell apart: rename one");
  static_assert(
      F != Fault::reference,
      "a remote method cannot take a T&, since what a message brings is nobody's variable: take it by value, "
      "and return what changed");
  static_assert(F != Fault::field,
                "a field of this struct cannot travel in a message: docs/reference/types.md lists the types "
                "that do; leave "
                "it out, or give it such a type");
  static_assert(
      F != Fault::parameter,
      "a parameter of this remote method cannot travel in a message: docs/reference/types.md lists the types "
      "that do");
  static_assert(
      F != Fault::future,
      "a remote method gives the value of a future, not the future: return Task<R>, and co_return co_await "
      "the future");
  static_assert(
      F != Fault::result,
      "the result of this remote method cannot travel in a message: docs/reference/types.md lists the types "
      "that do");
  static_assert(
      F != Fault::not_by_value,
      "a coroutine method takes its arguments by value, since it outlives the message that brings them");
  static_assert(F != Fault::blocking,
                "a coroutine waits with co_await, so it is no blocking<> method: list it without");
  static_assert(F != Fault::names,
                "doc<> gives another number of parameter names than the method has parameters");
  static_assert(F != Fault::argument,
                "an argument of this constructor cannot travel in a message: docs/reference/types.md lists "
                "the types that "
                "do");
  static_assert(
      F != Fault::no_constructor,
      "the actor has no constructor that takes these arguments: look at their number and their types");
  return F == Fault::none;
}

template <class T, auto M>
constexpr bool is_listed() {
  return Listed<std::remove_cv_t<decltype(T::remote)>, M>::value;
}

/// The name of a method that must be listed.
template <class T, auto M>
constexpr const char* listed_name() {
  static_assert(is_listed<T, M>(),
                "this method is not listed in the actor's `remote`: add it there, methods<..., &T::method>");
  return method_name<M>();
}

/// How many of the last parameters of M may be left out.
template <class T, auto M>
constexpr size_t default_count() {
  using L = Listed<std::remove_cv_t<decltype(T::remote)>, M>;
  if constexpr (L::kDefaults < std::tuple_size_v<decltype(T::remote.defaulted)>)
    return std::tuple_size_v<decltype(std::get<L::kDefaults>(T::remote.defaulted).values)>;
  else
    return 0;
}

/// Adds the defaults of the last parameters that the caller left out.
template <class T, auto M>
void add_defaults([[maybe_unused]] ValueList& args) {
  using Traits = MethodTraits<std::remove_cv_t<decltype(M)>>;
  if constexpr (constexpr size_t count = default_count<T, M>(); count > 0) {
    constexpr auto& all =
        std::get<Listed<std::remove_cv_t<decltype(T::remote)>, M>::kDefaults>(T::remote.defaulted);
    const auto add = [&]<size_t I>(std::integral_constant<size_t, I>) {
      constexpr size_t position = Traits::kArity - count + I;
      using P = std::tuple_element_t<position, typename Traits::Tuple>;
      if (args.size() == position) args.push_back(Codec<P>::to(P(std::get<I>(all.values))));
    };
    [&]<size_t... I>(std::index_sequence<I...>) { (add(std::integral_constant<size_t, I>()), ...); }
    (std::make_index_sequence<count>{});
  }
}

// How texts of errors begin.
template <class T, auto M>
std::string method_prefix() {
  return method_prefix_of(type_name<T>(), method_name<M>());
}
template <class T>
std::string constructor_prefix() {
  return constructor_prefix_of(type_name<T>());
}

template <class T, auto E>
void invoke_method(Actor& actor, Invocation& invocation) {
  constexpr auto method = MethodEntry<E>::kPointer;
  using Traits = MethodTraits<std::remove_cv_t<decltype(method)>>;
  add_defaults<T, method>(invocation.call().args);
  [[maybe_unused]] auto args =
      Traits::Args::from(std::move(invocation.call().args), &method_prefix<T, method>);
  const auto call = [&]<size_t... I>(std::index_sequence<I...>) {
    if constexpr (std::is_member_pointer_v<std::remove_cv_t<decltype(method)>>)
      return (static_cast<T&>(actor).*method)(std::get<I>(std::move(args))...);
    else
      return method(std::get<I>(std::move(args))...);
  };
  constexpr std::make_index_sequence<Traits::kArity> all;
  if constexpr (Traits::kTask) {
    finish(invocation, AnyTask(call(all)));
  } else if constexpr (std::is_void_v<typename Traits::Return>) {
    call(all);
    invocation.complete(Value());
  } else {
    invocation.complete(to_value(call(all)));
  }
}

// ---- what the program knows of the class at run time

template <class T>
std::string travelling_name() {
  if constexpr (std::is_void_v<T>)
    return "nothing";
  else
    return Codec<T>::name();
}

template <class Tuple>
struct NamesOf;
template <class... A>
struct NamesOf<std::tuple<A...>> {
  static constexpr std::array<NameOf, sizeof...(A)> kNames{&Codec<A>::name...};
};
/// Those of entry E, whose types are those of a tuple.
template <auto E, class Tuple>
constexpr ActorType::Signature signature_of() {
  return {NamesOf<Tuple>::kNames, MethodEntry<E>::kParameters, MethodEntry<E>::kText};
}

template <class T, class... A>
std::unique_ptr<Actor> make_actor(ValueList&& args) {
  [[maybe_unused]] auto values = ListCodec<A...>::from(std::move(args), &constructor_prefix<T>);
  return [&]<size_t... I>(std::index_sequence<I...>)->std::unique_ptr<Actor> {
    return std::make_unique<T>(std::get<I>(std::move(values))...);
  }
  (std::index_sequence_for<A...>());
}

template <class... A>
uint64_t constructor_id() {
  return internal::net::method_id(type_name<Constructor<A...>>());
}

template <class T, auto E>
void add_entry(ActorType& type) {
  if constexpr (MethodEntry<E>::kConstructor) {
    [&]<class... A>(Constructor<A...>) {
      type.add_constructor(constructor_id<A...>(), &make_actor<T, A...>, true,
                           signature_of<E, std::tuple<A...>>());
    }(typename MethodEntry<E>::Args{});
  } else {
    using Traits = MethodTraits<std::remove_cv_t<decltype(MethodEntry<E>::kPointer)>>;
    type.add_method(method_name<MethodEntry<E>::kPointer>(), &invoke_method<T, E>, MethodEntry<E>::kBlocks,
                    signature_of<E, typename Traits::Tuple>(),
                    &travelling_name<std::decay_t<typename Traits::Return>>);
  }
}

template <class T, class Defaulted, auto... E>
std::shared_ptr<ActorType> make_type(const MethodList<Defaulted, E...>&) {
  auto type = new_type(type_name<T>());
  (add_entry<T, E>(*type), ...);
  register_type(type);
  return type;
}

/// One for each T in the program.
template <class T>
const std::shared_ptr<ActorType>& type_of() {
  static const std::shared_ptr<ActorType> type = make_type<T>(T::remote);
  return type;
}

template <class T, class... A>
uint64_t add_constructor() {
  const uint64_t id = constructor_id<A...>();
  type_of<T>()->add_constructor(id, &make_actor<T, A...>, false, {NamesOf<std::tuple<A...>>::kNames, {}, ""});
  return id;
}

/// A program that mentions this anywhere can make a T from arguments of types A..., in each of its processes,
/// since the number is made before main().
template <class T, class... A>
struct MadeFrom {
  static const uint64_t id;
};
template <class T, class... A>
const uint64_t MadeFrom<T, A...>::id = add_constructor<T, A...>();

/// As what an argument of spawn() travels: a piece of text as a string.
template <class A>
using Stored = std::conditional_t<std::is_convertible_v<A, std::string_view> &&
                                      !std::is_same_v<std::decay_t<A>, std::nullptr_t>,
                                  std::string, std::decay_t<A>>;

}  // namespace internal::actors

/// Actor types that the program makes by name only: each makes spawn<T>() known by itself.
template <class... Ts>
internal::actors::TypeRegistry hosting() {
  if constexpr ((internal::actors::accept<Ts>(internal::actors::actor_fault<Ts>()) && ...))
    return {internal::actors::type_of<Ts>()...};
  return {};
}

}  // namespace troupe
