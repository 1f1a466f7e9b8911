// The table, part one: functions of elements, arithmetic, comparisons, dtypes.
#include "ops/ops.h"
#include "tests/oracle/programs/calls.h"
#include "tests/oracle/programs/values.h"

namespace troupe::testing {
namespace {

// f(tensor, tensor), f(tensor, number) or f(number, tensor), as the arguments are.
template <class F>
Function two(F f) {
  return [f](const Arguments& a) -> Tensors {
    if (a.is_tensor(0) && a.is_tensor(1)) return {f(a.tensor(0), a.tensor(1))};
    if (a.is_tensor(0)) return {a.number(1, [&](auto v) { return f(a.tensor(0), v); })};
    return {a.number(0, [&](auto v) { return f(v, a.tensor(1)); })};
  };
}

// f(tensor, tensor) or f(tensor, number).
template <class F>
Function compare(F f) {
  return [f](const Arguments& a) -> Tensors {
    if (a.is_tensor(1)) return {f(a.tensor(0), a.tensor(1))};
    return {a.number(1, [&](auto v) { return f(a.tensor(0), v); })};
  };
}

Function one(Tensor (*f)(const Tensor&)) {
  return [f](const Arguments& a) -> Tensors { return {f(a.tensor(0))}; };
}

Tensors clamped(const Arguments& a) {
  const auto bound = [&](const char* name) -> std::optional<Scalar> {
    const Arg* given = a.option(name);
    if (!given) return {};
    return Arguments::number(*given, [](auto v) { return Scalar(v); });
  };
  return {a.tensor(0).clamp(bound("min"), bound("max"))};
}

Tensors converted(const Arguments& a) {
  const Arg* dtype = a.size() > 1 ? &a.arg(1) : a.option("dtype");
  const auto wanted = dtype ? dtype_named(dtype->text) : std::nullopt;
  if (!wanted) throw NotHere("no such dtype");
  return {a.tensor(0).to(*wanted)};
}

}  // namespace

void add_elementwise(Calls& calls) {
  calls["neg"] = one(ops::neg);
  calls["abs"] = one(ops::abs);
  calls["exp"] = one(ops::exp);
  calls["sin"] = one(ops::sin);
  calls["cos"] = one(ops::cos);
  calls["tanh"] = one(ops::tanh);
  calls["sigmoid"] = one(ops::sigmoid);
  calls["relu"] = one(ops::relu);
  calls["erf"] = one(ops::erf);
  calls["square"] = one(ops::square);
  calls["sign"] = one(ops::sign);
  calls["softplus"] = one([](const Tensor& x) { return ops::softplus(x); });
  calls["silu"] = one(ops::silu);
  calls["log"] = one(ops::log);
  calls["sqrt"] = one(ops::sqrt);
  calls["rsqrt"] = one(ops::rsqrt);
  calls["log1p"] = one(ops::log1p);
  calls["reciprocal"] = one(ops::reciprocal);
  calls["gelu"] = [](const Arguments& a) -> Tensors { return {ops::gelu(a.tensor(0))}; };
  calls["clamp"] = clamped;
  calls["floor"] = one(ops::floor);
  calls["ceil"] = one(ops::ceil);
  calls["round"] = one(ops::round);
  calls["expm1"] = one(ops::expm1);
  calls["log2"] = one(ops::log2);

  calls["add"] = two([](auto x, auto y) { return x + y; });
  calls["sub"] = two([](auto x, auto y) { return x - y; });
  calls["mul"] = two([](auto x, auto y) { return x * y; });
  calls["div"] = two([](auto x, auto y) { return x / y; });
  calls["pow"] = two([](auto x, auto y) { return ops::pow(x, y); });
  calls["floor_divide"] = two([](auto x, auto y) { return ops::floor_divide(x, y); });
  calls["remainder"] = two([](auto x, auto y) { return ops::remainder(x, y); });
  calls["atan2"] = [](const Arguments& a) -> Tensors { return {ops::atan2(a.tensor(0), a.tensor(1))}; };
  calls["maximum"] = [](const Arguments& a) -> Tensors { return {ops::maximum(a.tensor(0), a.tensor(1))}; };
  calls["minimum"] = [](const Arguments& a) -> Tensors { return {ops::minimum(a.tensor(0), a.tensor(1))}; };

  calls["eq"] = compare([](auto x, auto y) { return ops::eq(x, y); });
  calls["ne"] = compare([](auto x, auto y) { return ops::ne(x, y); });
  calls["lt"] = compare([](auto x, auto y) { return ops::lt(x, y); });
  calls["le"] = compare([](auto x, auto y) { return ops::le(x, y); });
  calls["gt"] = compare([](auto x, auto y) { return ops::gt(x, y); });
  calls["ge"] = compare([](auto x, auto y) { return ops::ge(x, y); });

  calls["to"] = converted;
}

}  // namespace troupe::testing
