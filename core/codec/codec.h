// Between C++ types and Value: what arguments and results may be.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
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
#include "core/value/value.h"

namespace troupe {

/// How a C++ type travels: `name()` for error texts, `to`, and `from`, which throws `invalid` ("expected
/// int64, got string"). docs/what-travels.md lists the types that do: numbers, bool, enums, std::string,
/// Bytes, Tensor, Value, std::chrono durations, std::vector, array, set, map, unordered_map, optional,
/// variant, pair, tuple, RRef<T> (rref/), and plain structs of these (core/codec/plain_struct.h).
template <class T, class = void>
struct Codec {};

/// Has a Codec. A future has none: as an argument of a call it is waited for, and its value travels.
template <class T>
concept Travels = requires {
  Codec<T>::name();
};

namespace internal {

template <class T>
constexpr void check_travels() {
  static_assert(
      Travels<T>,
      "this type cannot travel in a message: core/codec/codec.h lists those that can; a method gives the "
      "value of a future (co_await it), not the future");
}

[[noreturn]] inline void mismatch(const std::string& expected, const Value& got) {
  throw_invalid("expected " + expected + ", got " + got.describe());
}
template <class T>
T take(Value& v, const std::string& expected) {
  auto* p = v.get_if<T>();
  if (!p) mismatch(expected, v);
  return std::move(*p);
}
template <class T>
Value to_value(T&& x) {
  check_travels<std::decay_t<T>>();
  return Codec<std::decay_t<T>>::to(std::forward<T>(x));
}
template <class T>
T from_value(Value v) {
  check_travels<T>();
  return Codec<T>::from(std::move(v));
}

}  // namespace internal

/// A type that Value holds as it is.
template <class T>
struct PlainCodec {
  static Value to(T x) { return Value(std::move(x)); }
  static T from(Value v) { return internal::take<T>(v, Codec<T>::name()); }
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
  static Tensor from(Value v) { return v.is_null() ? Tensor() : internal::take<Tensor>(v, name()); }
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
  static Unit from(Value v) { return v.is_null() ? Unit{} : (internal::mismatch(name(), v), Unit{}); }
};
template <class T>
struct Codec<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static std::string name() { return "int" + std::to_string(sizeof(T) * 8); }
  static Value to(T x) { return Value(static_cast<int64_t>(x)); }
  static T from(Value v) {
    const auto x = internal::take<int64_t>(v, name());
    if (!std::in_range<T>(x) && sizeof(T) < 8)
      throw_invalid("expected " + name() + ", got " + std::to_string(x));
    return static_cast<T>(x);
  }
};
template <class T>
struct Codec<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static std::string name() { return "double"; }
  static Value to(T x) { return Value(static_cast<double>(x)); }
  static T from(Value v) {
    if (auto* i = v.get_if<int64_t>()) return static_cast<T>(*i);
    return static_cast<T>(internal::take<double>(v, name()));
  }
};
template <class T>
struct Codec<T, std::enable_if_t<std::is_enum_v<T> && !std::is_same_v<T, std::byte>>> {
  using Number = std::underlying_type_t<T>;
  static std::string name() { return "enum of " + Codec<Number>::name(); }
  static Value to(T x) { return Codec<Number>::to(static_cast<Number>(x)); }
  static T from(Value v) { return static_cast<T>(Codec<Number>::from(std::move(v))); }
};
/// An element type travels as its name: "float32".
template <>
struct Codec<DType> {
  static std::string name() { return "dtype"; }
  static Value to(DType t) { return std::string(troupe::name(t)); }
  static DType from(Value v) {
    const auto text = internal::take<std::string>(v, "the name of a dtype");
    std::string known;
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto t = static_cast<DType>(i);
      if (text == troupe::name(t)) return t;
      known += (i ? ", " : "") + std::string(troupe::name(t));
    }
    throw_invalid("expected the name of a dtype (" + known + "), got \"" + text + "\"");
  }
};
/// A number of any kind travels as the bool, int64 or double that it is.
template <>
struct Codec<Scalar> {
  static std::string name() { return "number"; }
  static Value to(const Scalar& x) {
    if (x.is_boolean()) return x.to<bool>();
    return x.is_floating() ? Value(x.to<double>()) : Value(x.to<int64_t>());
  }
  static Scalar from(const Value& v) {
    if (const auto* flag = v.get_if<bool>()) return *flag;
    if (const auto* whole = v.get_if<int64_t>()) return *whole;
    if (const auto* real = v.get_if<double>()) return *real;
    internal::mismatch(name(), v);
  }
};
/// A shape travels as the list of its sizes; one number is a shape of one dimension.
template <>
struct Codec<Shape> {
  static std::string name() { return "list of int64"; }
  static Value to(const Shape& shape) { return ValueList(shape.begin(), shape.end()); }
  static Shape from(Value v) {
    Shape shape;
    if (const auto* size = v.get_if<int64_t>()) return {*size};
    for (const Value& size : internal::take<ValueList>(v, name())) {
      if (const auto* n = size.get_if<int64_t>())
        shape.push_back(*n);
      else
        internal::mismatch(name(), size);
    }
    return shape;
  }
};
template <class Rep, class Period>
struct Codec<std::chrono::duration<Rep, Period>> {
  using T = std::chrono::duration<Rep, Period>;
  static std::string name() { return "duration as " + Codec<Rep>::name(); }
  static Value to(T x) { return Codec<Rep>::to(x.count()); }
  static T from(Value v) { return T(Codec<Rep>::from(std::move(v))); }
};
template <class T>
struct Codec<std::vector<T>, std::enable_if_t<!std::is_same_v<T, std::byte> && Travels<T>>> {
  static std::string name() { return "list of " + Codec<T>::name(); }
  static Value to(std::vector<T> xs) {
    ValueList list;
    list.reserve(xs.size());
    for (auto&& x : xs)
      list.push_back(Codec<T>::to(std::forward<decltype(x)>(x)));  // bools are no references
    return list;
  }
  static std::vector<T> from(Value v) {
    auto list = internal::take<ValueList>(v, name());
    std::vector<T> xs;
    xs.reserve(list.size());
    for (auto& x : list) xs.push_back(Codec<T>::from(std::move(x)));
    return xs;
  }
};
template <class T, size_t N>
struct Codec<std::array<T, N>> {
  static std::string name() { return "list of " + std::to_string(N) + " times " + Codec<T>::name(); }
  static Value to(std::array<T, N> xs) {
    ValueList list;
    list.reserve(N);
    for (auto&& x : xs) list.push_back(Codec<T>::to(std::move(x)));
    return list;
  }
  static std::array<T, N> from(Value v) {
    auto list = internal::take<ValueList>(v, name());
    if (list.size() != N) internal::mismatch(name(), Value(std::move(list)));
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
  static std::string name() { return "set of " + Codec<T>::name(); }
  static Value to(const Set& xs) {
    ValueList list;
    for (const T& x : xs) list.push_back(Codec<T>::to(x));
    return list;
  }
  static Set from(Value v) {
    Set xs;
    for (auto& x : take<ValueList>(v, name())) xs.insert(Codec<T>::from(std::move(x)));
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
    return kNamed ? "map of " + Codec<T>::name() : "map from " + Codec<K>::name() + " to " + Codec<T>::name();
  }
  static Value to(Map xs) {
    if constexpr (kNamed) {
      ValueMap map;
      for (auto& [k, x] : xs) map.emplace(k, Codec<T>::to(std::move(x)));
      return map;
    } else {
      ValueList list;
      for (auto& [k, x] : xs) list.push_back(ValueList{Codec<K>::to(k), Codec<T>::to(std::move(x))});
      return list;
    }
  }
  static Map from(Value v) {
    Map xs;
    if constexpr (kNamed) {
      for (auto& [k, x] : take<ValueMap>(v, name())) xs.emplace(k, Codec<T>::from(std::move(x)));
    } else {
      for (auto& entry : take<ValueList>(v, name())) {
        auto pair = take<ValueList>(entry, name());
        if (pair.size() != 2) mismatch(name(), Value(std::move(pair)));
        xs.emplace(Codec<K>::from(std::move(pair[0])), Codec<T>::from(std::move(pair[1])));
      }
    }
    return xs;
  }
};
}  // namespace internal
template <class T>
struct Codec<std::set<T>, std::enable_if_t<Travels<T>>> : internal::SetCodec<std::set<T>> {};
template <class T>
struct Codec<std::unordered_set<T>, std::enable_if_t<Travels<T>>>
    : internal::SetCodec<std::unordered_set<T>> {};
template <class K, class T>
struct Codec<std::map<K, T>, std::enable_if_t<Travels<K> && Travels<T>>>
    : internal::MapCodec<std::map<K, T>> {};
template <class K, class T>
struct Codec<std::unordered_map<K, T>, std::enable_if_t<Travels<K> && Travels<T>>>
    : internal::MapCodec<std::unordered_map<K, T>> {};
template <class T>
struct Codec<std::optional<T>, std::enable_if_t<Travels<T>>> {
  static std::string name() { return "optional " + Codec<T>::name(); }
  static Value to(std::optional<T> x) { return x ? Codec<T>::to(std::move(*x)) : Value(); }
  static std::optional<T> from(Value v) {
    if (v.is_null()) return std::nullopt;
    return Codec<T>::from(std::move(v));
  }
};

template <>
struct Codec<Error> {
  static std::string name() { return "error"; }
  static Value to(const Error& e) {
    return ValueList{Value(static_cast<int64_t>(e.kind())), Value(e.message()), Value(e.worker()),
                     Codec<std::vector<std::string>>::to(e.trail())};
  }
  static Error from(Value v) {
    auto list = internal::take<ValueList>(v, name());
    if (list.size() != 4) internal::mismatch(name(), Value(list));
    const auto kind = Codec<uint8_t>::from(list[0]);
    if (kind >= kErrorKindCount) throw_invalid("expected an error, got kind " + std::to_string(kind));
    Error e = Error(static_cast<ErrorKind>(kind), Codec<std::string>::from(list[1]))
                  .with_worker(Codec<std::string>::from(list[2]));
    for (auto& call : Codec<std::vector<std::string>>::from(list[3]))
      e = std::move(e).crossing(std::move(call));
    return e;
  }
};

namespace internal {

/// Values of the types Ts as a list, for tuples, structs and argument lists.
template <class... Ts>
struct ListCodec {
  static std::string name() {
    std::string out = "(";
    ((out += (out.size() > 1 ? ", " : "") + Codec<Ts>::name()), ...);
    return out + ")";
  }
  /// `what` starts the error text: "[call] Layer::forward".
  static std::tuple<Ts...> from(ValueList&& list, const std::string& what) {
    if (list.size() != sizeof...(Ts))
      throw_invalid(what + " takes " + std::to_string(sizeof...(Ts)) + " arguments " + name() + ", got " +
                    std::to_string(list.size()));
    return unpack(list, what, std::index_sequence_for<Ts...>{});
  }

 private:
  template <size_t... I>
  static std::tuple<Ts...> unpack([[maybe_unused]] ValueList& list, [[maybe_unused]] const std::string& what,
                                  std::index_sequence<I...>) {
    return std::tuple<Ts...>{one<Ts>(list[I], I, what)...};  // braces: left to right
  }
  template <class T>
  static T one(Value& v, size_t index, const std::string& what) {
    check_travels<T>();
    try {
      return Codec<T>::from(std::move(v));
    } catch (const Error& e) {
      throw Error(e.kind(), what + " argument " + std::to_string(index + 1) + ": " + e.message());
    }
  }
};

}  // namespace internal

template <class... Ts>
struct Codec<std::tuple<Ts...>, std::enable_if_t<(Travels<Ts> && ...)>> {
  static std::string name() { return "tuple " + internal::ListCodec<Ts...>::name(); }
  static Value to(std::tuple<Ts...> xs) {
    return std::apply([](auto&&... x) { return ValueList{Codec<Ts>::to(std::move(x))...}; }, std::move(xs));
  }
  static std::tuple<Ts...> from(Value v) {
    return internal::ListCodec<Ts...>::from(internal::take<ValueList>(v, name()), "tuple");
  }
};
template <>
struct Codec<std::monostate> {
  static std::string name() { return "nothing"; }
  static Value to(std::monostate) { return {}; }
  static std::monostate from(Value v) {
    if (!v.is_null()) internal::mismatch(name(), v);
    return {};
  }
};
/// The position of the alternative, and its value.
template <class... Ts>
struct Codec<std::variant<Ts...>, std::enable_if_t<(Travels<Ts> && ...)>> {
  using T = std::variant<Ts...>;
  static std::string name() { return "one of " + internal::ListCodec<Ts...>::name(); }
  static Value to(T x) {
    const auto index = static_cast<int64_t>(x.index());
    return std::visit(
        [&](auto& held) {
          return Value(ValueList{Value(index), Codec<std::decay_t<decltype(held)>>::to(std::move(held))});
        },
        x);
  }
  static T from(Value v) {
    auto list = internal::take<ValueList>(v, name());
    if (list.size() != 2) internal::mismatch(name(), Value(std::move(list)));
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
struct Codec<std::pair<A, B>, std::enable_if_t<Travels<A> && Travels<B>>> {
  static std::string name() { return "pair " + internal::ListCodec<A, B>::name(); }
  static Value to(std::pair<A, B> x) {
    return Codec<std::tuple<A, B>>::to({std::move(x.first), std::move(x.second)});
  }
  static std::pair<A, B> from(Value v) {
    auto t = Codec<std::tuple<A, B>>::from(std::move(v));
    return {std::move(std::get<0>(t)), std::move(std::get<1>(t))};
  }
};

}  // namespace troupe

#include "core/codec/plain_struct.h"
