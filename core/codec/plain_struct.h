// Plain structs travel as the list of their fields, which are found by taking the struct apart.
#pragma once
#include <tuple>
#include <type_traits>

#include "core/codec/codec.h"

namespace troupe {
namespace internal {

constexpr int kMostFields = 24;

/// Stands for a base of T in its initializers.
template <class T>
struct AnyBaseOf {
  template <class B>
  requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T>) operator B() const;
};

/// How many fields an aggregate has: the most empty initializers that it takes. -1: too many, or it has a
/// base, whose fields cannot be told from its own.
template <class T>
constexpr int field_count() {
  // clang-format off
  if constexpr (std::is_empty_v<T>)
    return 0;
  else if constexpr (requires { T{AnyBaseOf<T>{}}; } || requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return -1;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 24;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 23;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 22;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 21;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 20;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 19;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 18;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 17;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 16;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 15;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 14;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 13;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 12;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 11;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 10;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}}; })
    return 9;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}}; })
    return 8;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}}; })
    return 7;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}}; })
    return 6;
  else if constexpr (requires { T{{}, {}, {}, {}, {}}; })
    return 5;
  else if constexpr (requires { T{{}, {}, {}, {}}; })
    return 4;
  else if constexpr (requires { T{{}, {}, {}}; })
    return 3;
  else if constexpr (requires { T{{}, {}}; })
    return 2;
  else if constexpr (requires { T{{}}; })
    return 1;
  else
    return -1;
  // clang-format on
}

/// Calls use with references to the fields.
template <class T, class F>
auto with_fields(T& whole, F use) {
  constexpr int N = field_count<std::remove_const_t<T>>();
  // clang-format off
  if constexpr (N == 0)
    return use();
  else if constexpr (N == 1) {
    auto& [a] = whole;
    return use(a);
  }
  else if constexpr (N == 2) {
    auto& [a, b] = whole;
    return use(a, b);
  }
  else if constexpr (N == 3) {
    auto& [a, b, c] = whole;
    return use(a, b, c);
  }
  else if constexpr (N == 4) {
    auto& [a, b, c, d] = whole;
    return use(a, b, c, d);
  }
  else if constexpr (N == 5) {
    auto& [a, b, c, d, e] = whole;
    return use(a, b, c, d, e);
  }
  else if constexpr (N == 6) {
    auto& [a, b, c, d, e, f] = whole;
    return use(a, b, c, d, e, f);
  }
  else if constexpr (N == 7) {
    auto& [a, b, c, d, e, f, g] = whole;
    return use(a, b, c, d, e, f, g);
  }
  else if constexpr (N == 8) {
    auto& [a, b, c, d, e, f, g, h] = whole;
    return use(a, b, c, d, e, f, g, h);
  }
  else if constexpr (N == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = whole;
    return use(a, b, c, d, e, f, g, h, i);
  }
  else if constexpr (N == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = whole;
    return use(a, b, c, d, e, f, g, h, i, j);
  }
  else if constexpr (N == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k);
  }
  else if constexpr (N == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l);
  }
  else if constexpr (N == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m);
  }
  else if constexpr (N == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  }
  else if constexpr (N == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  }
  else if constexpr (N == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  }
  else if constexpr (N == 17) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  }
  else if constexpr (N == 18) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
  }
  else if constexpr (N == 19) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
  }
  else if constexpr (N == 20) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  }
  else if constexpr (N == 21) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
  }
  else if constexpr (N == 22) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
  }
  else if constexpr (N == 23) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
  }
  else if constexpr (N == 24) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = whole;
    return use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x);
  }
  // clang-format on
}

/// The types of the fields.
template <class... Fs>
struct Fields {
  using Codec = ListCodec<Fs...>;
  using Tuple = std::tuple<Fs...>;
  static constexpr bool kSerializable = (Serializable<Fs> && ...);
};
struct TypesOfFields {
  template <class... Fs>
  Fields<Fs...> operator()(Fs&...) const {
    return {};
  }
};
template <class T>
using FieldsOf = decltype(with_fields(std::declval<T&>(), TypesOfFields()));

template <class T>
constexpr bool kIsArray = false;
template <class T, size_t N>
constexpr bool kIsArray<std::array<T, N>> = true;

/// An aggregate that can be taken apart.
template <class T>
concept PlainStruct = std::is_class_v<T> && std::is_aggregate_v<T> && !kIsArray<T> && field_count<T>() >= 0;

/// It can be taken apart, but a field of it cannot travel.
template <class T>
constexpr bool kOpaqueFields = false;
template <PlainStruct T>
constexpr bool kOpaqueFields<T> = !FieldsOf<T>::kSerializable;

}  // namespace internal

namespace internal {

/// How a plain struct travels. One that many units send is compiled once: `extern template` behind it.
template <class T>
struct StructCodec {
  using Fields = FieldsOf<T>;
  static std::string name();
  static Value to(T x);
  static T from(Value v);
};
template <class T>
std::string StructCodec<T>::name() {
  return "struct of tuple " + Fields::Codec::name();
}
template <class T>
Value StructCodec<T>::to(T x) {
  return with_fields(x, [](auto&... field) { return Fields::Codec::to(std::move(field)...); });
}
template <class T>
T StructCodec<T>::from(Value v) {
  auto list = take<ValueList>(v, &Codec<typename Fields::Tuple>::name);
  T x{};
  with_fields(x, [&](auto&... field) { Fields::Codec::into(std::move(list), "tuple", field...); });
  return x;
}

}  // namespace internal

template <class T>
struct Codec<T, std::enable_if_t<internal::PlainStruct<T> && !internal::kOpaqueFields<T>>>
    : internal::StructCodec<T> {};

}  // namespace troupe
