// einsum against loops over all letters, its gradients, and what it refuses.
#include <catch2/catch.hpp>
#include <map>

#include "autograd/autograd.h"
#include "ops/gradient_rules.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct Case {
  std::string equation;  // without "..."; with "->"
  std::vector<Shape> shapes;
};

// Adds up the product of the operands over every value of every letter.
Tensor by_loops(const Case& c, const Tensors& in) {
  const size_t arrow = c.equation.find("->");
  std::vector<std::string> terms(1);
  for (const char letter : c.equation.substr(0, arrow))
    if (letter == ',')
      terms.emplace_back();
    else
      terms.back() += letter;
  std::map<char, int64_t> size, at;
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t d = 0; d < terms[i].size(); ++d) {
      int64_t& n = size[terms[i][d]];
      n = std::max(n, c.shapes[i][static_cast<int>(d)]);
      at[terms[i][d]] = 0;
    }
  const std::string wanted = c.equation.substr(arrow + 2);
  const auto place = [&](const std::string& letters, const Shape& shape) {
    int64_t offset = 0;
    for (size_t d = 0; d < letters.size(); ++d) {
      const int64_t n = shape[static_cast<int>(d)];
      offset = offset * n + (n == 1 ? 0 : at[letters[d]]);
    }
    return static_cast<size_t>(offset);
  };
  Shape shape;
  for (const char letter : wanted) shape.push_back(size[letter]);
  std::vector<double> out(static_cast<size_t>(shape.numel()), 0);
  std::vector<std::vector<double>> values;
  for (const Tensor& t : in) values.push_back(t.to_vector<double>());
  for (bool more = true; more;) {
    double product = 1;
    for (size_t i = 0; i < terms.size(); ++i) product *= values[i][place(terms[i], c.shapes[i])];
    out[place(wanted, shape)] += product;
    more = false;
    for (auto& [letter, value] : at) {
      if (++value < size[letter]) {
        more = true;
        break;
      }
      value = 0;
    }
  }
  return tensor(out, float64).reshape(shape);
}

}  // namespace

TEST_CASE("einsum is the sum of products over all letters, with their gradients") {
  const std::vector<Case> cases = {
      {"ij->ji", {{2, 3}}},
      {"ij->", {{2, 3}}},
      {"ii->", {{3, 3}}},
      {"ii->i", {{3, 3}}},
      {"iji->j", {{2, 3, 2}}},
      {"iii->i", {{2, 2, 2}}},
      {"i,j->ij", {{2}, {3}}},
      {"i,i->", {{4}, {4}}},
      {"ij,jk->ik", {{2, 3}, {3, 4}}},
      {"ij,jk->ki", {{2, 3}, {3, 4}}},
      {"bij,bjk->bik", {{2, 3, 4}, {2, 4, 2}}},
      {"bij,bkj->bik", {{2, 3, 4}, {2, 2, 4}}},
      {"ij,ij->j", {{2, 3}, {2, 3}}},
      {"ij,kl->l", {{2, 3}, {2, 2}}},
      {"ij,jk,kl->il", {{2, 3}, {3, 2}, {2, 4}}},
      {"bn,anm,bm->ba", {{2, 3}, {4, 3, 2}, {2, 2}}},
      {"ij,j->ij", {{2, 1}, {3}}},
      {"ii,ij->i", {{3, 3}, {3, 2}}},
      {"abcd,efcd->aebf", {{2, 2, 3, 2}, {2, 3, 3, 2}}},
  };
  for (const Case& c : cases) {
    INFO(c.equation);
    Tensors in;
    for (size_t i = 0; i < c.shapes.size(); ++i) in.push_back(ops::sample(c.shapes[i], -2, 2, i));
    CHECK(testing::difference(ops::einsum(c.equation, in), by_loops(c, in), 1e-12, 1e-12) == "");
    for (Tensor& t : in) t.requires_grad_();
    const auto report = autograd::gradcheck([&](const Tensors& x) { return ops::einsum(c.equation, x); }, in);
    INFO(report.text);
    CHECK(report.ok);
  }
}

TEST_CASE("einsum without an arrow, with dots and without elements") {
  const Tensor a = ops::sample({2, 3, 4}), b = ops::sample({4, 5}, -2, 2, 1),
               c = ops::sample({3, 3}, -2, 2, 2);
  CHECK(bit_equal(ops::einsum("ba", {b}), ops::t(b)));  // the letters in alphabetical order
  CHECK(testing::difference(ops::einsum("aa", {c}), ops::sum(c * eye(3, float64)), 1e-12, 0) == "");
  CHECK(testing::difference(ops::einsum("...ij,jk", {a, b}), ops::matmul(a, b), 1e-12, 1e-12) == "");
  CHECK(testing::difference(ops::einsum("...ij, ...jk -> ...ik", {a, b}), ops::matmul(a, b), 1e-12, 1e-12) ==
        "");
  CHECK(testing::difference(ops::einsum("...ij->ij", {a}), ops::sum(a, 0), 1e-12, 1e-12) == "");
  CHECK(ops::einsum("...,...", {ops::sample({3, 1}), ops::sample({2, 1, 4})}).shape() == Shape{2, 3, 4});
  CHECK(bit_equal(ops::einsum("ij,jk->ik", {ops::sample({2, 0}), ops::sample({0, 3})}),
                  zeros({2, 3}, float64)));
  CHECK(ops::einsum("ii->i", {ops::sample({0, 0})}).shape() == Shape{0});
  CHECK(bit_equal(ops::einsum("ij,jk->ik", {tensor({{1, 2}}), tensor({{3}, {4}})}), tensor({{11}})));
}

TEST_CASE("products of einsum that sum nothing are those of mul, in every dtype") {
  CHECK(bit_equal(ops::einsum("i,j->ij", {tensor({true, false}), tensor({true, true})}),
                  tensor({{true, true}, {false, false}})));
  CHECK(bit_equal(ops::einsum("i,i->i", {tensor({0.5, 1}), tensor({0.1, 3}, float64)}),
                  tensor({0.05, 3}, float64)));
  CHECK(bit_equal(ops::einsum("ij,k->ik", {tensor({{200, 100}}, uint8), tensor({1, 2}, uint8)}),
                  tensor({{300, 600}})));
}

TEST_CASE("einsum rounds no sum of halves before it is multiplied") {
  const Tensor x = (ops::sample({4, 300}) + 3).to(bfloat16), y = ops::sample({5}).to(bfloat16);
  const Tensor wide = ops::einsum("ij,k->ik", {x.to(float64), y.to(float64)});
  CHECK(testing::difference(ops::einsum("ij,k->ik", {x, y}).to(float64), wide, 1.01 * 0x1p-8, 0) == "");
}

TEST_CASE("einsum refuses a formula that does not fit") {
  const Tensor m = ops::sample({2, 3});
  const auto text = [](const std::string& equation, const Tensors& in) {
    return error_of([&] { ops::einsum(equation, in); }).message();
  };
  CHECK_THAT(text("ij,jk", {m}), Contains("stands for 2 tensors, got 1"));
  CHECK_THAT(text("ijk", {m}), Contains("\"ijk\" does not fit the dimensions of float64 [2, 3]"));
  CHECK_THAT(text("ij,ij", {m, ops::t(m)}), Contains("a letter stands for the sizes"));
  CHECK_THAT(text("ii", {m}), Contains("a letter stands twice for different sizes"));
  CHECK_THAT(text("ij->k", {m}), Contains("a letter that no tensor has"));
  CHECK_THAT(text("ij->ii", {m}), Contains("the result has a letter twice"));
  CHECK_THAT(text("i1", {m}), Contains("something else than letters"));
  CHECK_THAT(text("ij", {Tensor()}), Contains("undefined tensor"));
  CHECK_THAT(text("ij,jk", {m, tensor({{1}, {2}, {3}})}), Contains("dtype"));
}
