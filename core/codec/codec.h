// Between C++ types and Value: what arguments and results may be.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "core/async/future.h"
#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/value/value.h"

namespace troupe {

extern template std::shared_ptr<FutureCore> make_future_state<Value>();
extern template std::shared_ptr<FutureCore> make_future_state<Tensor>();

/// How a C++ type travels: `name()` for error texts, `to`, and `from`, which throws `invalid` ("expected
/// int64, got string"). docs/reference/types.md lists the types that do: numbers, bool, enums, std::string,
/// Bytes, Tensor, Value, std::chrono durations, std::vector, array, set, map, unordered_map, optional,
/// variant, pair, tuple, RRef<T> (rref/), and plain structs of these (core/codec/plain_struct.h).
template <class T, class = void>
struct Codec {};

/// Has a Codec. A future has none: as an argument of a call it is waited for, and its value travels.
template <class T>
concept Serializable = requires {
  Codec<T>::name();
};

namespace internal {

template <class T>
constexpr void check_serializable() {
  static_assert(
      Serializable<T>,
      "this type cannot travel in a message: core/codec/codec.h lists those that can; a method gives the "
      "value of a future (co_await it), not the future");
}

/// Gives the name of a type, for an error text: made only where there is one.
using NameOf = std::string (*)();
/// "list of " and the name.
std::string name_of(std::string what, NameOf of);
std::string name_of_int(size_t bytes);
/// "expected int64, got string".
[[noreturn]] void mismatch(NameOf expected, const Value& got);
[[noreturn]] void mismatch(const std::string& expected, const Value& got);
template <class T>
T take(Value& v, NameOf expected) {
  auto* p = v.get_if<T>();
  if (!p) mismatch(expected, v);
  return std::move(*p);
}
/// "expected int32, got 4294967296".
[[noreturn]] void out_of_range(NameOf expected, int64_t got);

/// A list of values that are moved into it.
ValueList list_of(Value* values, size_t count);
template <size_t N>
ValueList list_of(Value (&&values)[N]) {
  return list_of(values, N);
}

template <class T>
Value to_value(T&& x) {
  check_serializable<std::decay_t<T>>();
  return Codec<std::decay_t<T>>::to(std::forward<T>(x));
}
template <class T>
T from_value(Value v) {
  check_serializable<T>();
  return Codec<T>::from(std::move(v));
}

}  // namespace internal

/// A type that Value holds as it is.
template <class T>
struct PlainCodec {
  static Value to(T x) { return Value(std::move(x)); }
  static T from(Value v) { return internal::take<T>(v, &Codec<T>::name); }
};
template <>
struct Codec<bool> : PlainCodec<bool> {
  static std::string name() { return "bool"; }
};
template <>
struct Codec<std::string> : PlainCodec<std::string> {
  static std::string name() { return "string"; }
};
template <>
struct Codec<Bytes> : PlainCodec<Bytes> {
  static std::string name() { return "bytes"; }
};
template <>
struct Codec<Tensor> {
  static std::string name() { return "tensor"; }
  static Value to(Tensor t) {
    return t.defined() ? Value(std::move(t)) : Value();
  }  // undefined travels as nothing
  static Tensor from(Value v) { return v.is_null() ? Tensor() : internal::take<Tensor>(v, &name); }
};
template <>
struct Codec<Value> {
  static std::string name() { return "any value"; }
  static Value to(Value v) { return v; }
  static Value from(Value v) { return v; }
};
template <>
struct Codec<Unit> {
  static std::string name() { return "nothing"; }
  static Value to(Unit) { return {}; }
  static Unit from(Value v) { return v.is_null() ? Unit{} : (internal::mismatch(&name, v), Unit{}); }
};
template <class T>
struct Codec<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static std::string name() { return internal::name_of_int(sizeof(T)); }
  static Value to(T x) { return Value(static_cast<int64_t>(x)); }
  static T from(Value v) {
    const auto x = internal::take<int64_t>(v, &name);
    if (!std::in_range<T>(x) && sizeof(T) < 8) internal::out_of_range(&name, x);
    return static_cast<T>(x);
  }
};
template <class T>
struct Codec<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static std::string name() { return "double"; }
  static Value to(T x) { return Value(static_cast<double>(x)); }
  static T from(Value v) {
    if (auto* i = v.get_if<int64_t>()) return static_cast<T>(*i);
    return static_cast<T>(internal::take<double>(v, &name));
  }
};
template <class T>
struct Codec<T, std::enable_if_t<std::is_enum_v<T> && !std::is_same_v<T, std::byte>>> {
  using Number = std::underlying_type_t<T>;
  static std::string name() { return internal::name_of("enum of ", &Codec<Number>::name); }
  static Value to(T x) { return Codec<Number>::to(static_cast<Number>(x)); }
  static T from(Value v) { return static_cast<T>(Codec<Number>::from(std::move(v))); }
};
/// An element type travels as its name: "float32".
template <>
struct Codec<DType> {
  static std::string name() { return "dtype"; }
  static Value to(DType t) { return std::string(troupe::name(t)); }
  static DType from(Value v);
};
/// A number of any kind travels as the bool, int64 or double that it is.
template <>
struct Codec<Scalar> {
  static std::string name() { return "number"; }
  static Value to(const Scalar& x);
  static Scalar from(const Value& v);
};
/// A shape travels as the list of its sizes; one number is a shape of one dimension.
template <>
struct Codec<Shape> {
  static std::string name() { return "list of int64"; }
  static Value to(const Shape& shape);
  static Shape from(Value v);
};
/// A generator travels as its position.
template <>
struct Codec<Generator> {
  static std::string name() { return "generator"; }
  static Value to(const Generator& generator);
  static Generator from(Value v);
};
template <class Rep, class Period>
struct Codec<std::chrono::duration<Rep, Period>> {
  using T = std::chrono::duration<Rep, Period>;
  static std::string name() { return internal::name_of("duration as ", &Codec<Rep>::name); }
  static Value to(T x) { return Codec<Rep>::to(x.count()); }
  static T from(Value v) { return T(Codec<Rep>::from(std::move(v))); }
};
template <class T>
struct Codec<std::vector<T>, std::enable_if_t<!std::is_same_v<T, std::byte> && Serializable<T>>> {
  static std::string name() { return internal::name_of("list of ", &Codec<T>::name); }
  static Value to(std::vector<T> xs) {
    ValueList list(xs.size());
    size_t at = 0;
    for (auto&& x : xs) list[at++] = Codec<T>::to(std::forward<decltype(x)>(x));  // bools are no references
    return list;
  }
  static std::vector<T> from(Value v) {
    auto list = internal::take<ValueList>(v, &name);
    std::vector<T> xs;
    xs.reserve(list.size());
    for (auto& x : list) xs.push_back(Codec<T>::from(std::move(x)));
    return xs;
  }
};
template <class T, size_t N>
struct Codec<std::array<T, N>> {
  static std::string name() {
    return internal::name_of("list of " + std::to_string(N) + " times ", &Codec<T>::name);
  }
  static Value to(std::array<T, N> xs) {
    ValueList list(N);
    for (size_t i = 0; i < N; ++i) list[i] = Codec<T>::to(std::move(xs[i]));
    return list;
  }
  static std::array<T, N> from(Value v) {
    auto list = internal::take<ValueList>(v, &name);
    if (list.size() != N) internal::mismatch(&name, Value(std::move(list)));
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return std::array<T, N>{Codec<T>::from(std::move(list[I]))...};
    }
    (std::make_index_sequence<N>{});
  }
};

namespace internal {
/// Sets travel as lists.
template <class Set>
struct SetCodec {
  using T = typename Set::value_type;
  static std::string name() { return internal::name_of("set of ", &Codec<T>::name); }
  static Value to(const Set& xs) {
    ValueList list(xs.size());
    size_t at = 0;
    for (const T& x : xs) list[at++] = Codec<T>::to(x);
    return list;
  }
  static Set from(Value v) {
    Set xs;
    for (auto& x : take<ValueList>(v, &name)) xs.insert(Codec<T>::from(std::move(x)));
    return xs;
  }
};
/// Maps from strings travel as maps, others as lists of pairs.
template <class Map>
struct MapCodec {
  using K = typename Map::key_type;
  using T = typename Map::mapped_type;
  static constexpr bool kNamed = std::is_same_v<K, std::string>;
  static std::string name() {
    if constexpr (kNamed)
      return name_of("map of ", &Codec<T>::name);
    else
      return name_of("map from ", &Codec<K>::name) + name_of(" to ", &Codec<T>::name);
  }
  static Value to(Map xs) {
    if constexpr (kNamed) {
      ValueMap map;
      for (auto& [k, x] : xs) map.emplace(k, Codec<T>::to(std::move(x)));
      return map;
    } else {
      ValueList list(xs.size());
      size_t at = 0;
      for (auto& [k, x] : xs) list[at++] = list_of({Codec<K>::to(k), Codec<T>::to(std::move(x))});
      return list;
    }
  }
  static Map from(Value v) {
    Map xs;
    if constexpr (kNamed) {
      for (auto& [k, x] : take<ValueMap>(v, &name)) xs.emplace(k, Codec<T>::from(std::move(x)));
    } else {
      for (auto& entry : take<ValueList>(v, &name)) {
        auto pair = take<ValueList>(entry, &name);
        if (pair.size() != 2) mismatch(&name, Value(std::move(pair)));
        xs.emplace(Codec<K>::from(std::move(pair[0])), Codec<T>::from(std::move(pair[1])));
      }
    }
    return xs;
  }
};
}  // namespace internal
template <class T>
struct Codec<std::set<T>, std::enable_if_t<Serializable<T>>> : internal::SetCodec<std::set<T>> {};
template <class T>
struct Codec<std::unordered_set<T>, std::enable_if_t<Serializable<T>>>
    : internal::SetCodec<std::unordered_set<T>> {};
template <class K, class T>
struct Codec<std::map<K, T>, std::enable_if_t<Serializable<K> && Serializable<T>>>
    : internal::MapCodec<std::map<K, T>> {};
template <class K, class T>
struct Codec<std::unordered_map<K, T>, std::enable_if_t<Serializable<K> && Serializable<T>>>
    : internal::MapCodec<std::unordered_map<K, T>> {};
template <class T>
struct Codec<std::optional<T>, std::enable_if_t<Serializable<T>>> {
  static std::string name() { return internal::name_of("optional ", &Codec<T>::name); }
  static Value to(std::optional<T> x) { return x ? Codec<T>::to(std::move(*x)) : Value(); }
  static std::optional<T> from(Value v) {
    if (v.is_null()) return std::nullopt;
    return Codec<T>::from(std::move(v));
  }
};

template <>
struct Codec<Error> {
  static std::string name() { return "error"; }
  static Value to(const Error& e);
  static Error from(Value v);
};

namespace internal {

/// "(tensor, int64)".
std::string list_name(std::initializer_list<NameOf> types);
/// How an error text begins: with a text, or with what is made where there is an error.
class ErrorPrefix {
 public:
  ErrorPrefix(const char* text) : text_(text) {}
  ErrorPrefix(NameOf make) : make_(make) {}
  std::string str() const { return text_ ? text_ : make_(); }

 private:
  const char* text_ = nullptr;
  NameOf make_ = nullptr;
};
/// "[call] Layer::forward takes 2 arguments (tensor, int64), got 1".
[[noreturn]] void wrong_count(ErrorPrefix what, std::initializer_list<NameOf> types, size_t got);
/// The error in flight, of the argument at this place: "[call] Layer::forward argument 2: ...".
[[noreturn]] void argument_failed(ErrorPrefix what, size_t place, const Error& error);

/// Values of the types Ts as a list, for tuples, structs and argument lists.
template <class... Ts>
struct ListCodec {
  static std::string name() { return list_name({&Codec<Ts>::name...}); }
  static Value to(Ts&&... xs) { return list(std::move(xs)...); }
  static ValueList list(Ts&&... xs) {
    if constexpr (sizeof...(Ts) == 0)
      return {};
    else
      return list_of({Codec<Ts>::to(std::move(xs))...});
  }
  /// `what` starts the error text: "[call] Layer::forward".
  static std::tuple<Ts...> from(ValueList&& list, ErrorPrefix what) {
    if (list.size() != sizeof...(Ts)) wrong_count(what, {&Codec<Ts>::name...}, list.size());
    size_t at = 0;
    try {
      return std::tuple<Ts...>{next<Ts>(list, at)...};  // braces: left to right
    } catch (const Error& e) {
      argument_failed(what, at, e);
    }
  }
  /// The same into variables.
  static void into(ValueList&& list, ErrorPrefix what, Ts&... xs) {
    if (list.size() != sizeof...(Ts)) wrong_count(what, {&Codec<Ts>::name...}, list.size());
    size_t at = 0;
    try {
      ((xs = next<Ts>(list, at)), ...);
    } catch (const Error& e) {
      argument_failed(what, at, e);
    }
  }

 private:
  template <class T>
  static T next(ValueList& list, size_t& at) {
    check_serializable<T>();
    return Codec<T>::from(std::move(list[at++]));
  }
};

}  // namespace internal

template <class... Ts>
struct Codec<std::tuple<Ts...>, std::enable_if_t<(Serializable<Ts> && ...)>> {
  static std::string name() { return "tuple " + internal::ListCodec<Ts...>::name(); }
  static Value to(std::tuple<Ts...> xs) {
    return std::apply([](Ts&... x) { return internal::ListCodec<Ts...>::to(std::move(x)...); }, xs);
  }
  static std::tuple<Ts...> from(Value v) {
    return internal::ListCodec<Ts...>::from(internal::take<ValueList>(v, &name), "tuple");
  }
};
template <>
struct Codec<std::monostate> {
  static std::string name() { return "nothing"; }
  static Value to(std::monostate) { return {}; }
  static std::monostate from(Value v) {
    if (!v.is_null()) internal::mismatch(&name, v);
    return {};
  }
};
/// The position of the alternative, and its value.
template <class... Ts>
struct Codec<std::variant<Ts...>, std::enable_if_t<(Serializable<Ts> && ...)>> {
  using T = std::variant<Ts...>;
  static std::string name() { return "one of " + internal::ListCodec<Ts...>::name(); }
  static Value to(T x) {
    const auto index = static_cast<int64_t>(x.index());
    return std::visit(
        [&](auto& held) {
          return Value(
              internal::list_of({Value(index), Codec<std::decay_t<decltype(held)>>::to(std::move(held))}));
        },
        x);
  }
  static T from(Value v) {
    auto list = internal::take<ValueList>(v, &name);
    if (list.size() != 2) internal::mismatch(&name, Value(std::move(list)));
    const auto index = Codec<int64_t>::from(list[0]);
    std::optional<T> out;
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((index == static_cast<int64_t>(I)
            ? void(out.emplace(std::in_place_index<I>,
                               Codec<std::variant_alternative_t<I, T>>::from(std::move(list[1]))))
            : void()),
       ...);
    }
    (std::index_sequence_for<Ts...>{});
    if (!out) throw_invalid("expected " + name() + ", got alternative " + std::to_string(index));
    return std::move(*out);
  }
};
template <class A, class B>
struct Codec<std::pair<A, B>, std::enable_if_t<Serializable<A> && Serializable<B>>> {
  static std::string name() { return "pair " + internal::ListCodec<A, B>::name(); }
  static Value to(std::pair<A, B> x) {
    return internal::ListCodec<A, B>::to(std::move(x.first), std::move(x.second));
  }
  static std::pair<A, B> from(Value v) {
    auto t = Codec<std::tuple<A, B>>::from(std::move(v));
    return {std::move(std::get<0>(t)), std::move(std::get<1>(t))};
  }
};

}  // namespace troupe

#include "core/codec/plain_struct.h"
