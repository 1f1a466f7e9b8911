// What the tables of functions by name are made with.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/entry/maker.h"
#include "core/tensor/tensor.h"

namespace troupe {
namespace ops::internal {

/// The other operand of an operator.
struct Operand {
  std::variant<Tensor, Scalar> value;
};

using Table = std::vector<Maker<Value>>;

using troupe::internal::with;
inline Parameter none(const char* name) { return {name, "", Value()}; }

inline std::vector<int64_t> listed(const Shape& sizes) { return {sizes.begin(), sizes.end()}; }

template <class F>
void add(Table& t, std::string_view name, F f, std::vector<Parameter> parameters, std::string_view text) {
  t.push_back(maker<Value>(std::string(name), std::move(f), std::move(parameters), std::string(text)));
}

/// Functions that make tensors of numbers, and random ones.
void add_creation(Table& t);
/// Functions that arrange elements, and those that compute.
void add_arrangement(Table& t);
void add_computation(Table& t);
/// Functions of images, lines and sequences, and of order.
void add_windows(Table& t);
void add_order(Table& t);
/// A bound of clamp, beside another one that is a tensor; none: undefined.
inline bool is_tensor(const std::optional<Operand>& b) {
  return b && std::holds_alternative<Tensor>(b->value);
}
Tensor as_bound(const Tensor& x, const std::optional<Operand>& given);

/// Factorizations of matrices.
void add_matrices(Table& t);
/// Those in place.
void add_in_place(Table& t);

}  // namespace ops::internal

template <>
struct Codec<ops::internal::Operand> {
  using Operand = ops::internal::Operand;
  static std::string name() { return "tensor or number"; }
  static Value to(const Operand& x) {
    if (const auto* t = std::get_if<Tensor>(&x.value)) return *t;
    return Codec<Scalar>::to(std::get<Scalar>(x.value));
  }
  static Operand from(Value v) {
    if (auto* t = v.get_if<Tensor>()) return {std::move(*t)};
    try {
      return {Codec<Scalar>::from(v)};
    } catch (const Error&) {
      troupe::internal::mismatch(&name, v);
    }
  }
};

}  // namespace troupe
