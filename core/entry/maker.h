// Entries with a C++ function behind them, which is called with a list of values.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <tuple>
#include <utility>

#include "core/codec/codec.h"
#include "core/entry/entry.h"

namespace troupe {

/// An entry and what it makes of its arguments.
template <class T>
struct Maker : Entry {
  /// Takes what complete() gives. `invalid` naming the entry and the parameter whose value has another type.
  std::function<T(ValueList)> make;
  /// make() of completed arguments.
  T operator()(ValueList positional, ValueMap named = {}) const {
    return make(complete(*this, std::move(positional), std::move(named)));
  }
};

namespace internal {

/// Gives the parameters of an entry the types that those of its function have, by their Codec::name().
void set_types(Entry& entry, std::initializer_list<std::string (*)()> types);

/// A parameter with a default.
template <class T>
Parameter with(const char* name, T standard) {
  return {name, "", to_value(std::move(standard))};
}

template <class A>
A argument_of(const Entry& entry, size_t i, ValueList& values) {
  try {
    return Codec<A>::from(std::move(values[i]));
  } catch (const Error& e) {
    throw_invalid(entry.name + ": " + entry.parameters[i].name + ": " + e.message() + ": " +
                  entry.signature());
  }
}

template <class T, class F, class R, class... A>
Maker<T> maker_of(Entry entry, F f, R (*)(A...)) {
  (check_serializable<std::decay_t<A>>(), ...);
  set_types(entry, {&Codec<std::decay_t<A>>::name...});
  if constexpr (Serializable<std::decay_t<R>>) entry.result = Codec<std::decay_t<R>>::name();
  Maker<T> out{entry, {}};
  out.make = [about = std::make_shared<const Entry>(std::move(entry)),
              f = std::move(f)](ValueList values) -> T {
    return [&]<size_t... I>(std::index_sequence<I...>)->T {
      std::tuple<std::decay_t<A>...> arguments{argument_of<std::decay_t<A>>(*about, I, values)...};
      if constexpr (std::is_same_v<T, Value> && std::is_void_v<R>) {
        f(std::get<I>(arguments)...);
        return {};
      } else if constexpr (std::is_same_v<T, Value>) {
        return to_value(f(std::get<I>(arguments)...));
      } else {
        return f(std::get<I>(arguments)...);
      }
    }
    (std::index_sequence_for<A...>());
  };
  return out;
}
template <class F, class R, class... A>
auto plain_signature(R (F::*)(A...) const) -> R (*)(A...);
template <class F>
struct SignatureOf {
  using Type = decltype(plain_signature(&F::operator()));
};
template <class R, class... A>
struct SignatureOf<R (*)(A...)> {
  using Type = R (*)(A...);
};

}  // namespace internal

/// A maker from a function, or a lambda that is not generic. Types come from the function; `parameters` gives
/// the names and defaults: maker<Value>("narrow", &ops::narrow, {{"x"}, {"dim"}, {"start"}, {"length"}}, "A
/// part of a dimension.").
template <class T, class F>
Maker<T> maker(std::string name, F f, std::vector<Parameter> parameters, std::string text) {
  return internal::maker_of<T>(Entry{std::move(name), std::move(text), std::move(parameters)}, std::move(f),
                               typename internal::SignatureOf<F>::Type{});
}

}  // namespace troupe
