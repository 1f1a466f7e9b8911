// The list of methods that may be called from elsewhere, written once in the class.
#pragma once
#include <array>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "actors/cell/task.h"
#include "core/codec/codec.h"

namespace troupe {
namespace internal::actors {

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
  /// What a message brings can be bound to it.
  template <class P>
  static constexpr bool kTakes =
      !std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>;
  static constexpr bool kTakesAll = (kTakes<A> && ...),
                        kArgumentsSerializable = (Serializable<std::decay_t<A>> && ...),
                        kOpaqueFields = (internal::kOpaqueFields<std::decay_t<A>> || ...);
};
template <class T, class R, class... A>
struct MethodTraits<R (T::*)(A...) const> : MethodTraits<R (T::*)(A...)> {};
template <class T, class R, class... A>
struct MethodTraits<R (T::*)(A...) noexcept> : MethodTraits<R (T::*)(A...)> {};
template <class T, class R, class... A>
struct MethodTraits<R (T::*)(A...) const noexcept> : MethodTraits<R (T::*)(A...)> {};
template <class T, class R, class... A>
struct MethodTraits<Task<R> (T::*)(A...)> : MethodTraits<R (T::*)(A...)> {
  static constexpr bool kTask = true;
};
/// A static member, or a free function: runs in the actor's mailbox like a method, without the object.
template <class R, class... A>
struct MethodTraits<R (*)(A...)> : MethodTraits<R (Actor::*)(A...)> {};

// ---- names, as the compiler writes them

template <auto M>
struct MethodConstant {};

template <auto M>
constexpr const char* compilers_text() {
  return __PRETTY_FUNCTION__;  // "... [with auto M = &Layer::forward]", "... [M = &Layer::forward]"
}

/// "forward" of &Layer::forward.
template <auto M>
struct MethodName {
  static constexpr auto kText = [] {
    constexpr std::string_view text = compilers_text<M>();
    constexpr size_t end = text.rfind(']');
    constexpr size_t begin = [](std::string_view t, size_t e) {
      const auto in_name = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
      };
      while (e > 0 && in_name(t[e - 1])) --e;
      return e;
    }(text, end);
    std::array<char, end - begin + 1> out{};
    for (size_t i = begin; i < end; ++i) out[i - begin] = text[i];
    return out;
  }();
};
template <auto M>
constexpr const char* method_name() {
  return MethodName<M>::kText.data();
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

// ---- entries of the list

template <class M>
struct Blocking {
  M pointer;
};
template <class... A>
struct Constructor {};
template <size_t N>
struct FixedText {
  char text[N];
  constexpr FixedText(const char (&from)[N]) {
    for (size_t i = 0; i < N; ++i) text[i] = from[i];
  }
};
template <auto E, FixedText text, FixedText... parameters>
struct Documented {
  static constexpr auto kEntry = E;
  static constexpr const char* kText = text.text;
  static constexpr std::array<const char*, sizeof...(parameters)> kParameters{parameters.text...};
};
template <class E>
concept IsDocumented = requires {
  E::kEntry;
  E::kText;
};

/// One entry, whichever way it was written.
template <auto E, class Kind = std::remove_cv_t<decltype(E)>>
struct MethodEntry {
  static constexpr auto kPointer = E;
  static constexpr bool kConstructor = false, kBlocks = false;
  static constexpr const char* kText = "";
  static constexpr std::array<const char*, 0> kParameters{};
};
template <auto E, class M>
struct MethodEntry<E, Blocking<M>> : MethodEntry<E.pointer> {
  static constexpr bool kBlocks = true;
};
template <auto E, class... A>
struct MethodEntry<E, Constructor<A...>> {
  using Args = Constructor<A...>;
  static constexpr bool kConstructor = true;
  static constexpr const char* kText = "";
  static constexpr std::array<const char*, 0> kParameters{};
};
template <auto E, IsDocumented D>
struct MethodEntry<E, D> : MethodEntry<D::kEntry> {
  static constexpr const char* kText = D::kText;
  static constexpr auto kParameters = D::kParameters;
};

template <auto E, class... D>
struct Defaults {
  using Method = MethodConstant<E>;
  std::tuple<D...> values;
};

template <class Defaulted, auto... Entries>
struct MethodList;
template <class... Ds, auto... Entries>
struct MethodList<std::tuple<Ds...>, Entries...> {
  std::tuple<Ds...> defaulted;

  /// The last parameters of method M take these values where a call leaves them out: what the class writes as
  /// default arguments, which its pointer does not tell.
  template <auto M, class... D>
  constexpr auto defaults(D... values) const {
    using More = Defaults<M, D...>;
    return MethodList<std::tuple<Ds..., More>, Entries...>{
        std::tuple_cat(defaulted, std::tuple<More>(More{std::tuple<D...>(values...)}))};
  }
};

template <class List, auto M>
struct Listed;
template <class... Ds, auto... Entries, auto M>
struct Listed<MethodList<std::tuple<Ds...>, Entries...>, M> {
  template <auto E>
  static constexpr bool is() {
    // By type: with -fsanitize=undefined, g++ 12 takes no comparison of two functions for constant.
    if constexpr (MethodEntry<E>::kConstructor)
      return false;
    else
      return std::is_same_v<MethodConstant<MethodEntry<E>::kPointer>, MethodConstant<M>>;
  }
  static constexpr bool value = (is<Entries>() || ...);
  /// Position among the defaults, or their number.
  static constexpr size_t kDefaults = [] {
    size_t at = 0;
    bool found = false;
    ((found = found || std::is_same_v<typename Ds::Method, MethodConstant<M>>, at += !found), ...);
    return at;
  }();
};

}  // namespace internal::actors

/// The remote methods of an actor class: pointers to members, static members or free functions, each by
/// itself or in blocking<> or doc<>; and constructor<>s that may be used by name. Names are the functions'
/// own.
///
///   static constexpr auto remote = methods<&Layer::forward, &Layer::loss>;
template <auto... Entries>
inline constexpr internal::actors::MethodList<std::tuple<>, Entries...> methods{};

/// In a list of methods: one that may wait for something else than a future, such as a lock, a file or
/// another process. It runs on a thread of the pool however short it has been, never on one that reads a
/// connection, and takes that thread from other actors while it waits.
template <auto M>
inline constexpr internal::actors::Blocking<decltype(M)> blocking{M};

/// In a list of methods: the class can be made by name, from a shell say, of arguments of these types.
template <class... A>
inline constexpr internal::actors::Constructor<A...> constructor{};

/// In a list of methods: an entry with one line of text and the names of its parameters, for shells and
/// tools.
///
///   doc<&Layer::loss, "Mean cross-entropy of a batch", "x", "labels">
template <auto Entry, internal::actors::FixedText text, internal::actors::FixedText... parameters>
inline constexpr internal::actors::Documented<Entry, text, parameters...> doc{};

}  // namespace troupe
