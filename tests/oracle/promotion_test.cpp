// The dtype of every operator of every pair of dtypes, and what it gives, against PyTorch's table.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <variant>

#include "core/base/error.h"
#include "ops/operators.h"
#include "ops/ops.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;

namespace {

using nlohmann::json;
using Operand = std::variant<Tensor, Scalar>;

struct Table {
  Table() {
    j = testing::read_oracle("promotion.json");
    for (const std::string name : j.at("dtypes"))
      for (int i = 0; i < kDTypeCount; ++i)
        if (troupe::name(static_cast<DType>(i)) == name) dtypes.push_back(static_cast<DType>(i));
    REQUIRE(dtypes.size() == size_t{kDTypeCount});
    codes = j.at("codes");
  }
  static double number(const json& v) {
    if (!v.is_string()) return v.is_boolean() ? v.get<bool>() : v.get<double>();
    const std::string text = v;
    return text == "nan" ? std::nan("") : text == "inf" ? HUGE_VAL : -HUGE_VAL;
  }
  static std::vector<double> numbers(const json& list) {
    std::vector<double> out;
    for (const json& v : list) out.push_back(number(v));
    return out;
  }
  Tensor tensor(const char* side, DType t) const {
    return ops::to(troupe::tensor(numbers(j.at(side).at(std::string(name(t)))), float64), t);
  }
  std::vector<Operand> operands(const char* side, char kind) const {
    if (kind == 'n') return {Scalar(true), Scalar(2), Scalar(1.5)};
    std::vector<Operand> out;
    for (const DType t : dtypes) {
      const Tensor x = tensor(side, t);
      out.push_back(kind == 'd' ? x : x.select(0, 0));
    }
    return out;
  }
  char code(const std::function<Tensor()>& f, Tensor& result) const {
    try {
      result = f();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::invalid || e.kind() == ErrorKind::unimplemented) return '-';
      throw;
    }
    for (size_t i = 0; i < dtypes.size(); ++i)
      if (dtypes[i] == result.dtype()) return codes[i];
    return '?';
  }
  json j;
  std::vector<DType> dtypes;
  std::string codes;
};

Tensor mask() { return tensor({true, false, true, false}); }

// Tensor and tensor, tensor and number, number and tensor.
struct Binary {
  std::function<Tensor(const Tensor&, const Tensor&)> tensors;
  std::function<Tensor(const Tensor&, Scalar)> number = {};
  std::function<Tensor(Scalar, const Tensor&)> reverse = {};
  Tensor operator()(const Operand& a, const Operand& b) const {
    const auto *x = std::get_if<Tensor>(&a), *y = std::get_if<Tensor>(&b);
    return x && y ? tensors(*x, *y) : x ? number(*x, std::get<Scalar>(b)) : reverse(std::get<Scalar>(a), *y);
  }
};
#define TROUPE_BOTH(f) [](const auto& a, const auto& b) { return f(a, b); }
#define TROUPE_SIGN(sign) [](const auto& a, const auto& b) { return a sign b; }
#define TROUPE_ALL(f) \
  { TROUPE_BOTH(f), TROUPE_BOTH(f), TROUPE_BOTH(f) }
#define TROUPE_LAST(f) \
  { TROUPE_BOTH(f), TROUPE_BOTH(f) }

const std::map<std::string, Binary> kBinary = {
    {"add", {TROUPE_SIGN(+), TROUPE_SIGN(+), TROUPE_SIGN(+)}},
    {"sub", {TROUPE_SIGN(-), TROUPE_SIGN(-), TROUPE_SIGN(-)}},
    {"mul", {TROUPE_SIGN(*), TROUPE_SIGN(*), TROUPE_SIGN(*)}},
    {"div", {TROUPE_SIGN(/), TROUPE_SIGN(/), TROUPE_SIGN(/)}},
    {"pow", TROUPE_ALL(ops::pow)},
    {"floor_divide", TROUPE_ALL(ops::floor_divide)},
    {"remainder", TROUPE_ALL(ops::remainder)},
    {"fmod", TROUPE_LAST(ops::fmod)},
    {"eq", TROUPE_LAST(ops::eq)},
    {"ne", TROUPE_LAST(ops::ne)},
    {"lt", TROUPE_LAST(ops::lt)},
    {"le", TROUPE_LAST(ops::le)},
    {"gt", TROUPE_LAST(ops::gt)},
    {"ge", TROUPE_LAST(ops::ge)},
    {"maximum", {TROUPE_BOTH(ops::maximum)}},
    {"minimum", {TROUPE_BOTH(ops::minimum)}},
    {"atan2", {TROUPE_BOTH(ops::atan2)}},
    {"where",
     {[](const Tensor& a, const Tensor& b) { return ops::where(mask(), a, b); },
      [](const Tensor& a, Scalar b) { return ops::where(mask(), a, b); },
      [](Scalar a, const Tensor& b) { return ops::where(mask(), a, b); }}},
    {"cat", {[](const Tensor& a, const Tensor& b) {
       return ops::cat({a, b}, 0);
     }}},
    {"stack", {[](const Tensor& a, const Tensor& b) {
       return ops::stack({a, b}, 0);
     }}},
    {"mse_loss", {[](const Tensor& a, const Tensor& b) { return ops::mse_loss(a, b); }}},
    {"l1_loss", {[](const Tensor& a, const Tensor& b) { return ops::l1_loss(a, b); }}},
    {"smooth_l1_loss", {[](const Tensor& a, const Tensor& b) { return ops::smooth_l1_loss(a, b); }}},
    {"huber_loss", {[](const Tensor& a, const Tensor& b) { return ops::huber_loss(a, b); }}},
    {"logical_and", {TROUPE_BOTH(ops::logical_and)}},
    {"logical_or", {TROUPE_BOTH(ops::logical_or)}},
    {"matmul", {TROUPE_BOTH(ops::matmul)}},
};

#define TROUPE_UNARY(f)                           \
  {                                               \
#f, [](const Tensor& x) { return ops::f(x); } \
  }
const std::map<std::string, std::function<Tensor(const Tensor&)>> kUnary = {
    TROUPE_UNARY(neg),
    TROUPE_UNARY(abs),
    TROUPE_UNARY(square),
    TROUPE_UNARY(sign),
    TROUPE_UNARY(floor),
    TROUPE_UNARY(ceil),
    TROUPE_UNARY(round),
    TROUPE_UNARY(trunc),
    TROUPE_UNARY(exp),
    TROUPE_UNARY(expm1),
    TROUPE_UNARY(log),
    TROUPE_UNARY(log1p),
    TROUPE_UNARY(log2),
    TROUPE_UNARY(sqrt),
    TROUPE_UNARY(rsqrt),
    TROUPE_UNARY(reciprocal),
    TROUPE_UNARY(sin),
    TROUPE_UNARY(cos),
    TROUPE_UNARY(erf),
    TROUPE_UNARY(tanh),
    TROUPE_UNARY(sigmoid),
    TROUPE_UNARY(relu),
    TROUPE_UNARY(sum),
    TROUPE_UNARY(prod),
    TROUPE_UNARY(mean),
    TROUPE_UNARY(any),
    TROUPE_UNARY(all),
    TROUPE_UNARY(isnan),
    TROUPE_UNARY(isfinite),
    TROUPE_UNARY(logical_not),
    TROUPE_UNARY(norm),
    TROUPE_UNARY(gelu),
    TROUPE_UNARY(silu),
    TROUPE_UNARY(softplus),
    TROUPE_UNARY(leaky_relu),
    TROUPE_UNARY(elu),
    {"amax", [](const Tensor& x) { return ops::amax(x, {}); }},
    {"amin", [](const Tensor& x) { return ops::amin(x, {}); }},
    {"var", [](const Tensor& x) { return ops::var(x, {}); }},
    {"std", [](const Tensor& x) { return ops::std(x); }},
    {"cumsum", [](const Tensor& x) { return ops::cumsum(x, 0); }},
    {"argmax", [](const Tensor& x) { return ops::argmax(x, 0); }},
    {"argmin", [](const Tensor& x) { return ops::argmin(x, 0); }},
    {"logsumexp", [](const Tensor& x) { return ops::logsumexp(x, {0}); }},
    {"softmax", [](const Tensor& x) { return ops::softmax(x, 0); }},
    {"log_softmax", [](const Tensor& x) { return ops::log_softmax(x, 0); }},
    {"clamp 0 4", [](const Tensor& x) { return ops::clamp(x, 0, 4); }},
    {"clamp 0.5", [](const Tensor& x) { return ops::clamp(x, 0.5); }},
    {"masked_fill 1", [](const Tensor& x) { return ops::masked_fill(x, mask(), 1); }},
    {"masked_fill 0.5", [](const Tensor& x) { return ops::masked_fill(x, mask(), 0.5); }},
};

// Refused here, answered there: PyTorch's result of two dtypes is not of the common one.
bool may_refuse(const std::string& name) { return name == "huber_loss"; }
// Answered here, refused there: a bool beside a floating tensor.
bool may_answer(const std::string& name) { return name == "l1_loss"; }

std::string compare(const Tensor& got, const json& wanted) {
  const Tensor values = tensor(Table::numbers(wanted), float64);
  const double close = got.dtype() == bfloat16  ? 0.02
                       : got.dtype() == float16 ? 0.004
                       : got.dtype() == float64 ? 1e-12
                                                : 1e-5;
  return testing::difference(got.to(float64).reshape({-1}), values, close, close);
}

TEST_CASE("operators of two dtypes give PyTorch's dtype and values, or are refused as there") {
  const Table table;
  int checked = 0;
  for (const auto& [name, entry] : table.j.at("binary").items()) {
    REQUIRE(kBinary.count(name) == 1);
    const Binary& f = kBinary.at(name);
    for (const auto& [kinds, letters] : entry.items()) {
      if (kinds == "values") continue;
      const std::string wanted = letters;
      const auto first = table.operands("a", kinds[0]), second = table.operands("b", kinds[1]);
      REQUIRE(wanted.size() == first.size() * second.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        const size_t a = i / second.size(), b = i % second.size();
        Tensor result;
        const char got = table.code([&] { return f(first[a], second[b]); }, result);
        INFO(name << " of kinds " << kinds << ", operands " << a << " and " << b);
        if (got == '-' && wanted[i] != '-' && may_refuse(name)) continue;
        if (wanted[i] == '-' && got != '-' && may_answer(name)) continue;
        CHECK(std::string(1, got) == std::string(1, wanted[i]));
        if (kinds == "dd" && got != '-' && got == wanted[i])
          CHECK(compare(result, entry.at("values")[i]) == "");
        ++checked;
      }
    }
  }
  CHECK(checked > 4000);
}

TEST_CASE("operators of one tensor give PyTorch's dtype and values, or are refused as there") {
  const Table table;
  for (const auto& [name, entry] : table.j.at("unary").items()) {
    REQUIRE(kUnary.count(name) == 1);
    const std::string wanted = entry.at("d");
    for (size_t i = 0; i < wanted.size(); ++i) {
      Tensor result;
      const char got =
          table.code([&, &n = name] { return kUnary.at(n)(table.tensor("a", table.dtypes[i])); }, result);
      INFO(name << " of " << troupe::name(table.dtypes[i]));
      CHECK(std::string(1, got) == std::string(1, wanted[i]));
      if (got != '-' && got == wanted[i]) CHECK(compare(result, entry.at("values")[i]) == "");
    }
  }
}

}  // namespace
