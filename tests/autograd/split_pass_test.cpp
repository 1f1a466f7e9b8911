// A backward pass in two parts gives the bits of one, and does nothing twice.
#include "autograd/split_pass.h"

#include <map>

#include "autograd/add_gradient.h"
#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/hooks.h"
#include "core/graph/partial_node.h"
#include "ops/ops.h"
#include "tests/autograd/graph.h"

using namespace troupe;
using namespace troupe::testing;
using internal::autograd::SplitPass;

namespace {

struct Sums : internal::autograd::Sink {
  std::map<const TensorImpl*, Tensor> of;
  void accumulate(const Tensor& leaf, const Tensor& grad) override {
    internal::autograd::add_gradient(of[leaf.impl()], grad);
  }
};

Tensor values(const Shape& shape, double start) {
  const Tensor t = empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = static_cast<float>(std::sin(start + 0.37 * static_cast<double>(i)));
  return t;
}
Tensor parameter(const Shape& shape, double start) { return values(shape, start).requires_grad_(); }

using Function = std::function<Tensors(const Tensor& x)>;

// Runs f both ways; inputs of float32 [4, 6].
void same_bits(const Tensors& parameters, const Function& f) {
  const Tensor x = values({4, 6}, 1).requires_grad_(), y = values({4, 6}, 1).requires_grad_();
  Tensors whole = f(x), parts = f(y), grads;
  for (size_t i = 0; i < whole.size(); ++i) grads.push_back(values(whole[i].shape(), 3 + double(i)));
  for (const Tensor& p : parameters) p.set_grad({});
  autograd::backward(whole, grads);

  Sums sums;
  internal::autograd::SplitPass pass(parts, {y});
  parts.clear();
  CHECK_FALSE(pass.leaves_actor());
  const Tensors first = pass.inputs(grads);
  CHECK(sums.of.empty());
  REQUIRE(first.size() == 1);
  CHECK(bit_equal(first[0], x.grad()));
  pass.rest(sums);
  CHECK(sums.of.size() == parameters.size());  // and nothing for the input
  for (const Tensor& p : parameters) CHECK(bit_equal(sums.of.at(p.impl()), p.grad()));
}

// a * b, which says what it was asked for.
class Product final : public PartialNode {
 public:
  Product(Tensor a, Tensor b, std::vector<std::string>& asked) : a_(a), b_(b), asked_(asked) {
    set_next({a.gradient_edge(), b.gradient_edge()});
  }
  Tensors apply(Tensors&& grads) override {
    return apply_some(std::move(grads), {.wanted = std::vector<uint8_t>{1, 1}});
  }
  Tensors apply_some(Tensors&& g, const GradientRequest& request) override {
    const auto wanted = request.wanted;
    asked_.push_back(std::string(wanted[0] ? "a" : "") + (wanted[1] ? "b" : ""));
    return {wanted[0] ? ops::mul(g[0], b_) : Tensor(), wanted[1] ? ops::mul(g[0], a_) : Tensor()};
  }
  void release_saved() override { asked_.push_back("released"); }
  std::string name() const override { return "product"; }

 private:
  Tensor a_, b_;
  std::vector<std::string>& asked_;
};

Tensor product(const Tensor& a, const Tensor& b, std::vector<std::string>& asked) {
  Tensor out = ops::mul(a.detach(), b.detach());
  out.set_grad_fn({make_ref<Product>(a, b, asked), 0});
  return out;
}

}  // namespace

TEST_CASE("both parts of a pass have the bits of one pass") {
  const Tensor w = parameter({5, 6}, 0), b = parameter({5}, 2), v = parameter({6, 5}, 4),
               g = parameter({6}, 5), h = parameter({6}, 6), r = parameter({4, 6}, 7);
  SECTION("layers one after the other") {
    same_bits({w, b, v},
              [&](const Tensor& x) { return Tensors{ops::linear(ops::relu(ops::linear(x, w, b)), v)}; });
  }
  SECTION("a residual block with a norm") {
    same_bits({g, h, w, b, v}, [&](const Tensor& x) {
      const Tensor y = ops::layer_norm(x, g.shape(), g, h);
      return Tensors{ops::add(x, ops::linear(ops::gelu(ops::linear(y, w, b)), v))};
    });
  }
  SECTION("a parameter that is used twice, once through a view") {
    same_bits({w},
              [&](const Tensor& x) { return Tensors{ops::matmul(ops::linear(x, w), ops::mul(w, 0.5))}; });
  }
  SECTION("several results, one of which does not depend on the input") {
    same_bits({w, r}, [&](const Tensor& x) {
      return Tensors{ops::linear(x, w), ops::mul(r, r), ops::add(x, r)};
    });
  }
  SECTION("parameters alone, where two of them meet") {
    same_bits({w, v},
              [&](const Tensor& x) { return Tensors{ops::add(ops::matmul(x, ops::matmul(v, w)), x)}; });
  }
  SECTION("a checkpoint makes its steps again once for both parts") {
    int runs = 0;
    same_bits({w, b, v}, [&](const Tensor& x) {
      return Tensors{autograd::checkpoint(
          [&](const Tensor& in) {
            ++runs;
            return ops::linear(ops::relu(ops::linear(in, w, b)), v);
          },
          x)};
    });
    CHECK(runs == 4);  // twice forward, twice again
  }
}

TEST_CASE("a step between the two parts gives one gradient in each, and keeps what it saved until then") {
  std::vector<std::string> asked;
  const Tensor x = leaf({2, 3}), w = leaf({5, 7});
  internal::autograd::SplitPass pass({product(product(x, w, asked), w, asked)}, {x});
  CHECK(pass.inputs({tensor({1, 1}, float64)})[0].to_vector<double>() == std::vector<double>{25, 49});
  CHECK(asked == std::vector<std::string>{"a", "a"});
  Sums sums;
  pass.rest(sums);
  CHECK(asked == std::vector<std::string>{"a", "a", "b", "released", "b", "released"});
  CHECK(sums.of.at(w.impl()).to_vector<double>() == std::vector<double>{20, 42});
  CHECK(invalid_text([&] { (void)pass.inputs(); }) ==
        "[backward] the first part of this pass was already run");
}

TEST_CASE("gradients of given inputs take only the work that leads to them") {
  std::vector<std::string> asked;
  const Tensor x = leaf({2, 3}), w = leaf({5, 7});
  (void)autograd::grad({product(x, w, asked)}, {x}, {tensor({1, 1}, float64)});
  CHECK(asked == std::vector<std::string>{"a", "released"});
}

TEST_CASE("without inputs everything is left for the second part") {
  std::vector<std::string> asked;
  const Tensor w = leaf({5, 7});
  internal::autograd::SplitPass pass({product(tensor({2, 3}, float64), w, asked)}, {});
  CHECK(pass.inputs({tensor({1, 1}, float64)}).empty());
  CHECK(asked.empty());
  Sums sums;
  pass.rest(sums);
  CHECK(sums.of.at(w.impl()).to_vector<double>() == std::vector<double>{2, 3});
}

TEST_CASE("hooks of results and of parameters run once, in the part that they belong to") {
  const Tensor x = values({4, 6}, 1).requires_grad_(), w = parameter({5, 6}, 0);
  std::vector<std::string> ran;
  const auto of_weight = autograd::register_hook(w, [&](const Tensor&) {
    ran.push_back("weight");
    return Tensor();
  });
  const Tensor y = ops::linear(x, w);
  const auto of_result = autograd::register_hook(y, [&](const Tensor& g) {
    ran.push_back("result");
    return ops::mul(g, 2.0);
  });
  internal::autograd::SplitPass pass({y}, {x});
  (void)pass.inputs({ones({4, 5})});
  CHECK(ran == std::vector<std::string>{"result"});
  Sums sums;
  pass.rest(sums);
  CHECK(ran == std::vector<std::string>{"result", "weight"});
  CHECK(sums.of.at(w.impl()).to_vector<double>()[0] ==
        Approx(2 * ops::sum(x.detach(), {0}).to_vector<double>()[0]));
}
