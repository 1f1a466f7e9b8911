// Entries with a C++ function behind them, which is called with a list of values.
#pragma once
#include <functional>
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
  const std::vector<std::string> types{Codec<std::decay_t<A>>::name()...};
  if (types.size() != entry.parameters.size())
    throw_invalid("entry " + entry.name + " names " + std::to_string(entry.parameters.size()) +
                  " parameters; its function has " + std::to_string(types.size()));
  for (size_t i = 0; i < types.size(); ++i) entry.parameters[i].type = types[i];
  if constexpr (Serializable<std::decay_t<R>>) entry.result = Codec<std::decay_t<R>>::name();
  Maker<T> out{entry, {}};
  out.make = [entry = std::move(entry), f = std::move(f)](ValueList values) -> T {
    return [&]<size_t... I>(std::index_sequence<I...>)->T {
      std::tuple<std::decay_t<A>...> arguments{argument_of<std::decay_t<A>>(entry, I, values)...};
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
