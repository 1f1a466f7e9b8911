// Operators by name give what their functions in C++ give, with numbers beside tensors too.
#include "script/operators.h"

#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;

namespace {

using ops::Op;
using Numbers = std::vector<double>;

Tensor named(std::string_view name, ValueList positional, ValueMap by_name = {}) {
  return std::get<Tensor>(script::run_operator(name, std::move(positional), std::move(by_name)).at(0).v);
}
std::string refused(std::string_view name, ValueList positional) {
  return testing::text_of([&] { named(name, std::move(positional)); });
}

Tensor numbers() { return tensor({{0.1, -2.7, 3.3}, {0.7, 5.1, -0.1}}, float64); }

// Those to which a script gives a number beside a tensor.
std::vector<const Op*> with_two_operands() {
  std::vector<const Op*> out;
  for (const Op* op : ops::all_ops())
    if (!op->internal && op->max_inputs == 2 && op->promotes != ops::Promotion::none &&
        op->attrs.list().empty())
      out.push_back(op);
  return out;
}

TEST_CASE("a number beside a float64 tensor has all its digits, in every operator of two operands") {
  const Tensor x = numbers(), exact = tensor(0.1, float64);
  const auto all = with_two_operands();
  CHECK(all.size() >= 17);
  for (const Op* op : all) {
    INFO(op->name);
    CHECK(testing::difference(named(op->name, {x, 0.1}), ops::apply1(*op, {x, exact}), 1e-15, 0) == "");
    CHECK(testing::difference(named(op->name, {0.1, x}), ops::apply1(*op, {exact, x}), 1e-15, 0) == "");
  }
  CHECK(named("eq", {tensor({0.1}, float64), 0.1}).item<bool>());
  CHECK(named("sub", {tensor({0.1}, float64), 0.1}).item() == 0);
}

TEST_CASE("a number by name is what it is in C++") {
  const Tensor flags = tensor({true, false});
  for (const DType t : {boolean, uint8, int32, int64, bfloat16, float16, float32, float64})
    for (const Scalar& n : {Scalar(2), Scalar(0.3), Scalar(true)}) {
      const Tensor x = tensor({1, 3}).to(t);
      INFO(name(t) << " and " << n.str());
      const Value v = n.is_boolean()    ? Value(n.to<bool>())
                      : n.is_floating() ? Value(n.to<double>())
                                        : Value(n.to<int64_t>());
      const auto same = [&](const char* op, auto f, auto g) {
        INFO(op);
        for (const bool left : {false, true}) {
          Tensor wanted, got;
          const std::string no = testing::text_of([&] { wanted = left ? Tensor(g(n, x)) : Tensor(f(x, n)); });
          const std::string says = testing::text_of([&] {
            got = left ? named(op, {v, x}) : named(op, {x, v});
          });
          CHECK(says == no);
          if (wanted.defined() && got.defined()) CHECK(bit_equal(got, wanted));
        }
      };
      const auto both = [&](const char* op, auto f) { same(op, f, f); };
      same(
          "add", [](auto a, auto b) { return a + b; }, [](auto a, auto b) { return a + b; });
      both("sub", [](auto a, auto b) { return a - b; });
      both("mul", [](auto a, auto b) { return a * b; });
      both("div", [](auto a, auto b) { return a / b; });
      both("remainder", [](auto a, auto b) { return a % b; });
      both("pow", [](auto a, auto b) { return ops::pow(a, b); });
      both("floor_divide", [](auto a, auto b) { return ops::floor_divide(a, b); });
      both("eq", [](auto a, auto b) { return a == b; });
      both("ne", [](auto a, auto b) { return a != b; });
      both("lt", [](auto a, auto b) { return a < b; });
      both("le", [](auto a, auto b) { return a <= b; });
      both("gt", [](auto a, auto b) { return a > b; });
      both("ge", [](auto a, auto b) { return a >= b; });
      CHECK(bit_equal(named("where", {flags, x, v}), ops::where(flags, x, n)));
      CHECK(bit_equal(named("where", {flags, v, x}), ops::where(flags, n, x)));
      CHECK(bit_equal(named("where", {flags, v, 2.5}), ops::where(flags, n, 2.5)));
    }
  CHECK(named("where", {flags, 1, 2.5}).dtype() == float32);
  CHECK_THAT(refused("lt", {tensor({1}, uint8), 300}), Contains("300 is beyond what uint8 holds"));
  CHECK_THAT(refused("lt", {300, tensor({1}, uint8)}), Contains("300 is beyond what uint8 holds"));
  CHECK_THAT(refused("maximum", {tensor({1}, uint8), 300}), Contains("[maximum]") && Contains("300"));
}

TEST_CASE("what a function of C++ converts is converted by name, too") {
  const Tensor x = tensor({0, 2.5, -1}, float64), i = tensor({0, 3, 1}), one = tensor(5, float64);
  const Tensor zero = tensor(0), first = tensor({0}), flags = tensor({true, false, true});
  const auto same = [](const Tensor& got, const Tensor& wanted) { CHECK(bit_equal(got, wanted)); };
  same(named("logical_and", {x, i}), ops::logical_and(x, i));
  same(named("logical_or", {x, i}), ops::logical_or(x, i));
  same(named("logical_not", {i}), ops::logical_not(i));
  same(named("square", {flags}), ops::square(flags));
  same(named("roll", {x, 1}), ops::roll(x, 1));
  same(named("roll", {one, 1}), one);
  same(named("gather", {one, 0, first}), tensor({5}, float64));
  same(named("gather", {x, 0, tensor(1)}), tensor(2.5, float64));
  same(named("index_select", {one, 0, zero}), one);
  same(named("index_copy", {x, 0, zero, one}), tensor({5, 2.5, -1}, float64));
  same(named("index_copy", {one, 0, first, one * 2}), one * 2);
  same(named("scatter_add", {x, 0, zero, one}), tensor({5, 2.5, -1}, float64));
  same(named("scatter_add", {one, 0, first, tensor({1}, float64)}), one + 1);
  same(named("linear", {tensor({{1, 2}}), tensor({{3, 4}}), tensor({5})}), tensor({{16}}));
  same(named("linear", {ops::reshape(x, {1, 3}), x}), ops::linear(ops::reshape(x, {1, 3}), x));
  same(named("masked_fill", {x, flags, one}), tensor({5, 2.5, 5}, float64));
  same(named("masked_fill", {i, flags, 2.5}), tensor({2, 3, 2}));
  same(named("bitwise_and", {flags, true}), flags);
  same(named("bitwise_xor", {true, flags}), ops::logical_not(flags));
  CHECK_THAT(refused("bitwise_or", {flags, 1}), Contains("use true or false"));
  CHECK_THAT(refused("sub", {flags, x}), Contains("is not for bool"));
  CHECK_THAT(refused("roll", {x, ValueList{}}), Contains("[roll] needs shifts"));
}

}  // namespace
