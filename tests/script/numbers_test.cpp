// Numbers by name, wherever they stand, have all the digits of the tensor beside them.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "ops/inplace.h"
#include "ops/ops.h"
#include "script/operators.h"

using namespace troupe;

namespace {

using script::run_operator;
using Values = std::vector<double>;

Tensor by_name(const std::string& name, ValueList positional, ValueMap named = {}) {
  return std::get<Tensor>(run_operator(name, std::move(positional), std::move(named)).at(0).v);
}

// As PyTorch: from the rest, so that no quotient that is rounded up decides.
double rest_of(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
double floor_of(double a, double b) { return std::round((a - rest_of(a, b)) / b); }

// What operators of two operands are of doubles.
const std::map<std::string, double (*)(double, double)> kPairs = {
    {"add", [](double a, double b) { return a + b; }},
    {"sub", [](double a, double b) { return a - b; }},
    {"mul", [](double a, double b) { return a * b; }},
    {"div", [](double a, double b) { return a / b; }},
    {"pow", [](double a, double b) { return std::pow(a, b); }},
    {"floor_divide", floor_of},
    {"remainder", rest_of},
    {"fmod", [](double a, double b) { return std::fmod(a, b); }},
    {"maximum", [](double a, double b) { return std::max(a, b); }},
    {"minimum", [](double a, double b) { return std::min(a, b); }},
    {"atan2", [](double a, double b) { return std::atan2(a, b); }},
    {"eq", [](double a, double b) { return a == b ? 1.0 : 0.0; }},
    {"ne", [](double a, double b) { return a != b ? 1.0 : 0.0; }},
    {"lt", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
    {"le", [](double a, double b) { return a <= b ? 1.0 : 0.0; }},
    {"gt", [](double a, double b) { return a > b ? 1.0 : 0.0; }},
    {"ge", [](double a, double b) { return a >= b ? 1.0 : 0.0; }},
    {"mse_loss", [](double a, double b) { return (a - b) * (a - b); }},
    {"l1_loss", [](double a, double b) { return std::abs(a - b); }},
    {"smooth_l1_loss",
     [](double a, double b) { return std::abs(a - b) < 1 ? (a - b) * (a - b) / 2 : std::abs(a - b) - 0.5; }},
};

TEST_CASE("numbers beside float64 keep all digits, on either side") {
  const Values elements = {0.1, -0.3, 2.5, 0.7, 1.1};
  const Tensor x = tensor(elements, float64);
  for (const auto& [name, exact] : kPairs)
    for (const double s : {0.1, 0.7, 2.5}) {
      INFO(name << " and " << s);
      const ValueMap each = name.ends_with("_loss") ? ValueMap{{"reduction", "none"}} : ValueMap();
      const Tensor second = by_name(name, {x, s}, each), first = by_name(name, {s, x}, each);
      for (size_t i = 0; i < elements.size(); ++i) {
        const auto near = [](double wanted) { return Approx(wanted).epsilon(4e-16).margin(0); };
        const double a = elements[i], forth = exact(a, s), back = exact(s, a);
        INFO("element " << a);
        if (!std::isnan(forth)) CHECK(second.to_vector<double>()[i] == near(forth));
        if (!std::isnan(back)) CHECK(first.to_vector<double>()[i] == near(back));
      }
    }
}

// Every other place for a number, beside float64.
TEST_CASE("factors, bounds and values by name keep all digits") {
  const Tensor yes = tensor({true, false}), half = tensor({0.5, 0.5}, float64), zero = tensor({0});
  const auto x = [] { return tensor({0.1, 0.2}, float64); };
  struct Trial {
    ValueList positional;
    ValueMap named;
    Tensor wanted;
  };
  const double s = 0.7, i = 3;
  const Tensor square = tensor({{0.1, 0.2}, {0.3, 0.4}}, float64), cube = square[None];
  const std::map<std::string, std::vector<Trial>> trials = {
      {"add_", {{{x(), s}, {}, ops::add(x(), s)}, {{x(), half, s}, {}, ops::add(x(), half, s)}}},
      {"sub_", {{{x(), s}, {}, ops::sub(x(), s)}, {{x(), half}, {{"alpha", s}}, ops::sub(x(), half, s)}}},
      {"mul_", {{{x(), s}, {}, ops::mul(x(), s)}}},
      {"div_", {{{x(), s}, {}, ops::div(x(), s)}}},
      {"remainder_", {{{x(), s}, {}, ops::remainder(x(), s)}}},
      {"pow_", {{{x(), s}, {}, ops::pow(x(), s)}}},
      {"fill_", {{{x(), s}, {}, tensor({s, s}, float64)}}},
      {"clamp", {{{x(), 0.15}, {}, tensor({0.15, 0.2}, float64)}}},
      {"clamp_", {{{x()}, {{"max", 0.15}}, tensor({0.1, 0.15}, float64)}}},
      {"masked_fill", {{{x(), yes, s}, {}, tensor({s, 0.2}, float64)}}},
      {"masked_fill_", {{{x(), yes, s}, {}, tensor({s, 0.2}, float64)}}},
      {"where", {{{yes, s, x()}, {}, tensor({s, 0.2}, float64)}}},
      {"bitwise_and", {{{yes, true}, {}, yes}}},
      {"bitwise_or", {{{yes, false}, {}, yes}}},
      {"bitwise_xor", {{{true, yes}, {}, tensor({false, true})}}},
      {"addcmul", {{{x(), half, half, s}, {}, ops::addcmul(x(), half, half, s)}}},
      {"addcmul_", {{{x(), half, half, s}, {}, ops::addcmul(x(), half, half, s)}}},
      {"addcdiv", {{{x(), half, half, s}, {}, ops::addcdiv(x(), half, half, s)}}},
      {"addcdiv_", {{{x(), half, half, s}, {}, ops::addcdiv(x(), half, half, s)}}},
      {"lerp", {{{x(), half, s}, {}, ops::lerp(x(), half, s)}}},
      {"lerp_", {{{x(), half, s}, {}, ops::lerp(x(), half, s)}}},
      {"index_add", {{{x(), 0, zero, tensor({0.5}, float64), s}, {}, tensor({0.1 + 0.5 * s, 0.2}, float64)}}},
      {"index_add_",
       {{{x(), 0, zero, tensor({0.5}, float64), s}, {}, tensor({0.1 + 0.5 * s, 0.2}, float64)}}},
      {"div", {{{x(), s}, {}, ops::div(x(), s)}, {{s, x()}, {}, ops::div(s, x())}}},
      {"index_fill", {{{x(), 0, zero, s}, {}, tensor({s, 0.2}, float64)}}},
      {"scatter", {{{x(), 0, zero, s}, {}, tensor({s, 0.2}, float64)}}},
      {"repeat_interleave", {{{x(), 2}, {}, tensor({0.1, 0.1, 0.2, 0.2}, float64)}}},
      {"addmm", {{{square, square, square, s, s}, {}, ops::addmm(square, square, square, s, s)}}},
      {"addmv", {{{x(), square, x(), s, s}, {}, ops::addmv(x(), square, x(), s, s)}}},
      {"addr", {{{square, x(), x(), s, s}, {}, ops::addr(square, x(), x(), s, s)}}},
      {"addbmm", {{{square, cube, cube, s, s}, {}, ops::addbmm(square, cube, cube, s, s)}}},
      {"baddbmm", {{{cube, cube, cube, s, s}, {}, ops::baddbmm(cube, cube, cube, s, s)}}},
      {"quantile", {{{x(), s}, {}, ops::quantile(x(), s)}}},
      {"searchsorted", {{{x(), 0.1}, {}, tensor(0)}}},
      {"norm", {{{x(), i}, {}, ops::norm(x(), i)}}},
      {"pad", {{{x(), ValueList{0, 1}}, {{"value", s}}, tensor({0.1, 0.2, s}, float64)}}},
      {"full", {{{ValueList{1}, s, "float64"}, {}, tensor({s}, float64)}}},
      {"full_like", {{{x(), s}, {}, tensor({s, s}, float64)}}},
      {"arange", {{{0, 1, s, "float64"}, {}, tensor({0, s}, float64)}}},
  };
  for (const auto& [name, all] : trials)
    for (const Trial& t : all) {
      INFO(name);
      CHECK(bit_equal(by_name(name, t.positional, t.named), t.wanted));
    }
  for (const Entry& entry : script::operators())
    for (const Parameter& p : entry.parameters)
      if (p.type.find("number") != std::string::npos) {
        INFO(entry.signature() << ": a row for it belongs here");
        CHECK(trials.contains(entry.name));
      }
}

}  // namespace
