// The list of methods that may be called from elsewhere, written once in the class.
#pragma once
#include <array>
#include <string_view>
#include <tuple>

#include "actors/call_scope.h"
#include "actors/cell/actor_type.h"
#include "actors/cell/task.h"
#include "actors/codec.h"
#include "core/async/future_combinators.h"

namespace troupe {
namespace actors {

template <class M>
struct MethodTraits;
template <class T, class R, class... A>
struct MethodTraits<R (T::*)(A...)> {
  using Class = T;
  using Return = R;  // as the caller sees it
  using Args = ListCodec<std::decay_t<A>...>;
  using Tuple = std::tuple<std::decay_t<A>...>;
  static constexpr size_t kArity = sizeof...(A);
  static constexpr bool kTask = false, kByValue = (!std::is_reference_v<A> && ...);
};
template <class T, class R, class... A>
struct MethodTraits<R (T::*)(A...) const> : MethodTraits<R (T::*)(A...)> {};
template <class T, class R, class... A>
struct MethodTraits<Task<R> (T::*)(A...)> : MethodTraits<R (T::*)(A...)> {
  static constexpr bool kTask = true;
};
/// A static member, or a free function: runs in the actor's mailbox like a method, without the object.
template <class R, class... A>
struct MethodTraits<R (*)(A...)> : MethodTraits<R (Actor::*)(A...)> {};

template <class M>
struct Blocking {
  M pointer;
};
template <class M>
struct NamedMethod {
  const char* name;
  M pointer;
  bool blocks = false;
};
template <class M>
constexpr NamedMethod<M> named(const char* name, M pointer) {
  return {name, pointer};
}
template <class M>
constexpr NamedMethod<M> named(const char* name, Blocking<M> method) {
  static_assert(!MethodTraits<M>::kTask, "a coroutine waits with co_await: it cannot be blocking()");
  return {name, method.pointer, true};
}
template <class T, class Ctor, class... M>
struct MethodTable {
  std::tuple<NamedMethod<M>...> methods;
};

template <class T, class Ctor, class... Done>
constexpr auto collect(std::tuple<NamedMethod<Done>...> done) {
  return MethodTable<T, Ctor, Done...>{done};
}
template <class T, class Ctor, class... Done, class M, class... Rest>
constexpr auto collect(std::tuple<NamedMethod<Done>...> done, const char* name, M method, Rest... rest) {
  return collect<T, Ctor>(std::tuple_cat(done, std::tuple(named(name, method))), rest...);
}

template <class T>
constexpr std::string_view compilers_type_name() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [with T = Layer; std::string_view = ...]"
  const size_t at = text.find("T = ") + 4;
  return text.substr(at, text.find_first_of(";]", at) - at);
}

/// Without the words for a namespace that has no name, which are the compiler's own.
template <class T>
struct TypeName {
  static constexpr auto kText = [] {
    constexpr std::string_view text = compilers_type_name<T>();
    std::array<char, text.size() + 1> out{};
    size_t length = 0;
    for (size_t i = 0; i < text.size();) {
      size_t skip = 0;
      for (std::string_view unnamed : {"(anonymous namespace)::", "{anonymous}::"})
        if (text.substr(i).starts_with(unnamed)) skip = unnamed.size();
      if (skip == 0) out[length++] = text[i++];
      i += skip;
    }
    return out;
  }();
};

/// "Layer", "demo::Layer": the same in every process of one program.
template <class T>
constexpr std::string_view type_name() {
  return TypeName<T>::kText.data();
}

template <auto M>
struct MethodConstant {};

/// Position of method M in T::remote; compile error if it is not there.
template <class T, auto M>
constexpr size_t method_index() {
  constexpr size_t found = []<size_t... I>(std::index_sequence<I...>) {
    size_t index = ~size_t{0};
    // By type: with -fsanitize=undefined, g++ 12 takes no comparison of two functions for constant.
    ((std::is_same_v<MethodConstant<std::get<I>(T::remote.methods).pointer>, MethodConstant<M>>
          ? void(index = I)
          : void()),
     ...);
    return index;
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(T::remote.methods)>>{});
  static_assert(found != ~size_t{0}, "this method is not listed in the class's `remote`");
  return found;
}
template <class T, auto M>
constexpr const char* method_name() {
  return std::get<method_index<T, M>()>(T::remote.methods).name;
}

// Parameters end last to first: the object outlives the coroutine that works on it.
template <class R>
Detached finish(ActorCell::InUse, Ref<Invocation> invocation, Task<R> task) {
  try {
    if constexpr (std::is_void_v<R>) {
      co_await std::move(task);
      invocation->complete(Value());
    } else {
      invocation->complete(to_value(co_await std::move(task)));
    }
  } catch (...) {
    invocation->threw(current_error());
  }
}

template <class T, size_t I>
void invoke_method(Actor& actor, Invocation& invocation) {
  constexpr auto method = std::get<I>(T::remote.methods);
  using Traits = MethodTraits<std::remove_cv_t<decltype(method.pointer)>>;
  static_assert(!Traits::kTask || Traits::kByValue, "a coroutine method takes its arguments by value");
  static const std::string what = "[" + std::string(type_name<T>()) + "::" + method.name + "]";
  auto args = Traits::Args::from(std::move(invocation.call().args), what);
  auto call = [&](auto&&... a) {
    if constexpr (std::is_member_pointer_v<std::remove_cv_t<decltype(method.pointer)>>)
      return (static_cast<T&>(actor).*method.pointer)(std::move(a)...);
    else
      return method.pointer(std::move(a)...);
  };
  if constexpr (Traits::kTask) {
    finish(ActorCell::InUse(invocation.cell()), Ref<Invocation>(&invocation),
           std::apply(call, std::move(args)));
  } else if constexpr (std::is_void_v<typename Traits::Return>) {
    std::apply(call, std::move(args));
    invocation.complete(Value());
  } else {
    invocation.complete(to_value(std::apply(call, std::move(args))));
  }
}

template <class T, class... A, class... M>
std::shared_ptr<const ActorType> make_type(const MethodTable<T, std::tuple<A...>, M...>& table) {
  auto type = std::make_shared<ActorType>();
  type->name = type_name<T>();
  type->construct = [](ValueList&& args) -> std::unique_ptr<Actor> {
    auto values = ListCodec<A...>::from(std::move(args), "[" + std::string(type_name<T>()) + "] constructor");
    return std::apply([](auto&&... a) { return std::make_unique<T>(std::move(a)...); }, std::move(values));
  };
  [&]<size_t... I>(std::index_sequence<I...>) {
    (type->methods.push_back({net::method_id(std::get<I>(table.methods).name),
                              std::get<I>(table.methods).name, &invoke_method<T, I>,
                              std::get<I>(table.methods).blocks}),
     ...);
  }
  (std::index_sequence_for<M...>{});
  return type;
}

}  // namespace actors

/// In a list of methods: one that may wait for something else than a future, such as a lock, a file or
/// another process. It runs on a thread of the pool however short it has been, never on one that reads a
/// connection, and takes that thread from other actors while it waits.
template <class M>
constexpr actors::Blocking<M> blocking(M method) {
  return {method};
}

/// The remote methods of actor class T, constructed from CtorArgs: pairs of name and pointer, to members,
/// static members or free functions, or blocking() ones.
template <class T, class... CtorArgs, class... Pairs>
constexpr auto methods(Pairs... pairs) {
  return actors::collect<T, std::tuple<CtorArgs...>>(std::tuple<>{}, pairs...);
}

/// The actor types that a program hosts.
template <class... Ts>
actors::Hosting hosting() {
  return {actors::make_type(Ts::remote)...};
}

}  // namespace troupe
