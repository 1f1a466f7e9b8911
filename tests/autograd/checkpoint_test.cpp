// Recomputation: the same bits as without, less memory, and errors where it could not be right.
#include "autograd/checkpoint.h"

#include <catch2/catch.hpp>
#include <thread>

#include "autograd/autograd.h"
#include "core/base/generator.h"
#include "ops/inplace.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using autograd::checkpoint;
using Catch::Contains;

namespace {

Tensor leaf(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return ops::randn(shape, g).requires_grad_();
}

Tensor noise(const Tensor& x, Generator& g) {  // dropout, with the numbers of one generator
  return ops::mul(x, ops::to(ops::gt(ops::rand(x.shape(), g), tensor(0.3)), float32));
}

struct Block {
  Tensor w = leaf({16, 16}, 1), b = leaf({16}, 2);
  mutable Generator g{7};
  Tensor operator()(const Tensor& x) const {
    const Tensor h = noise(ops::tanh(ops::add(ops::matmul(x, w), b)), g);
    return ops::add(ops::softmax(ops::exp(h), 1), noise(x, g));
  }
};

// Gradients of x, w and b, with `each` applied to a Block and its input, three times in a row.
template <class F>
Tensors gradients(F each) {
  Block block;
  Tensor x = leaf({8, 16}, 3), y = ops::mul(x, 2.0);
  for (int i = 0; i < 3; ++i) y = each(block, y);
  autograd::backward(ops::sum(ops::square(y)));
  return {x.grad(), block.w.grad(), block.b.grad(), ops::rand({4}, block.g)};
}

void same_bits(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(bit_equal(a[i], b[i]));
}

}  // namespace

TEST_CASE("gradients and generators have the same bits with and without, also nested") {
  const Tensors plain = gradients([](const Block& f, const Tensor& x) { return f(x); });
  REQUIRE(plain[1].defined());
  same_bits(plain, gradients([](const Block& f, const Tensor& x) {
              return checkpoint([&f](const Tensor& t) { return f(t); }, x);
            }));
  const auto twice = [](const Block& f, const Tensor& x) { return f(ops::tanh(f(x))); };
  same_bits(gradients(twice), gradients([&](const Block& f, const Tensor& x) {
              return checkpoint(
                  [&f](const Tensor& t) {
                    const auto inner = [&f](const Tensor& u) { return f(u); };
                    return checkpoint(inner, ops::tanh(checkpoint(inner, t)));
                  },
                  x);
            }));
}

TEST_CASE("several inputs, some without gradient, and several results") {
  const auto f = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return Tensors{ops::mul(ops::exp(a), b), ops::mul(a, ops::tanh(c)), ops::tanh(b)};
  };
  const auto run = [&](bool checkpointed) {
    Tensor a = leaf({5}, 1), b = leaf({5}, 2), c = leaf({5}, 3).detach();
    const Tensor a2 = ops::mul(a, a);
    const Tensors out = checkpointed ? checkpoint(f, a2, b, c) : f(a2, b, c);
    CHECK_FALSE(out[2].is_leaf());
    autograd::backward(ops::sum(ops::mul(out[0], out[1])) + ops::sum(out[2]));
    CHECK_FALSE(c.grad().defined());
    return Tensors{a.grad(), b.grad(), out[0].detach(), out[1].detach()};
  };
  same_bits(run(false), run(true));
}

TEST_CASE(
    "grad() reaches captured parameters, runs twice with retain_graph, and second derivatives are right") {
  Tensor w = leaf({4}, 5);
  const auto f = [w](const Tensor& x) { return ops::tanh(ops::mul(ops::exp(x), w)); };
  const Tensor x = leaf({4}, 6);
  const auto second = [&](const Tensor& y, bool twice) {
    Tensors first = autograd::grad({ops::sum(y)}, {x, w}, {}, {.create_graph = true});
    if (twice) same_bits(first, autograd::grad({ops::sum(y)}, {x, w}, {}, {.create_graph = true}));
    for (const Tensor& t : autograd::grad({ops::sum(first[0] * first[1])}, {x, w}))
      first.push_back(t.detach());
    return first;
  };
  same_bits(second(f(ops::mul(x, 1.0)), false), second(checkpoint(f, ops::mul(x, 1.0)), true));
  CHECK(autograd::gradgradcheck(
            [](const Tensors& in) {
              return checkpoint(
                  [](const Tensor& a, const Tensor& b) { return ops::tanh(ops::mul(ops::exp(a), b)); },
                  ops::mul(in[0], 1.0), in[1]);
            },
            {x, w})
            .ok);
}

TEST_CASE("without a gradient to compute the function runs once and nothing is kept") {
  int runs = 0;
  const auto f = [&runs](const Tensor& x) { return ++runs, ops::exp(ops::tanh(x)); };
  Tensor x = leaf({1000}, 1);
  const size_t before = allocator_stats().in_use;
  {
    NoGradGuard off;
    CHECK_FALSE(checkpoint(f, x).requires_grad());
  }
  CHECK_FALSE(checkpoint(f, x.detach()).requires_grad());
  CHECK(allocator_stats().in_use == before);
  CHECK(runs == 2);
  const Tensor y = checkpoint(f, x);
  CHECK(runs == 3);
  autograd::backward(ops::sum(y));
  CHECK(runs == 4);
}

TEST_CASE("the forward pass holds only the inputs of its checkpoints") {
  constexpr int kBlocks = 8, kSteps = 10;
  constexpr size_t kBytes = 1 << 20;
  const auto f = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < kSteps; ++i) y = ops::tanh(y);
    return y;
  };
  size_t peak = 0;
  const auto watch = [&] { peak = std::max(peak, allocator_stats().in_use); };
  const auto run = [&](bool checkpointed) {
    const size_t before = allocator_stats().in_use;
    Tensor x = leaf({kBytes / 4}, 1), y = x;
    peak = 0;
    for (int i = 0; i < kBlocks; ++i) {
      y = checkpointed ? checkpoint(f, y) : f(y);
      autograd::register_hook(y, [&](const Tensor&) { return watch(), Tensor(); }).keep();
      watch();
    }
    autograd::backward(ops::sum(y));
    y = {};
    return std::pair{(peak - before) / kBytes, x.grad()};
  };
  const auto plain = run(false), less = run(true);
  CHECK(bit_equal(plain.second, less.second));
  CHECK(plain.first >= kBlocks * kSteps);
  CHECK(less.first <= kBlocks + kSteps + 6);
}

TEST_CASE("a generator made inside the function is no trouble, nor is one that is gone") {
  Tensor x = leaf({16}, 1);
  auto outside = std::make_unique<Generator>(3);
  const auto f = [g = outside.get()](const Tensor& t, bool alive) {
    Generator inside(11);
    if (alive) return noise(noise(ops::exp(t), inside), *g);
    return noise(ops::exp(t), inside);
  };
  const auto plain = autograd::grad({ops::sum(f(x, false))}, {x});
  Generator moved(5);
  const Tensor y = checkpoint([&](const Tensor& t) { return f(t, false); }, x);
  outside.reset();
  same_bits(plain, autograd::grad({ops::sum(y)}, {x}));
}

TEST_CASE("numbers of the program's stream are the same the second time, whoever draws in between") {
  const auto run = [](bool less) {
    manual_seed(5);
    Tensor x = leaf({16}, 1);
    const auto inner = [](const Tensor& t) { return ops::dropout(ops::exp(t), 0.5); };
    const auto f = [&](const Tensor& t) {
      const Tensor once = ops::mul(ops::dropout(ops::exp(t), 0.5), ops::rand({16}));
      return ops::add(once, less ? checkpoint(inner, once) : inner(once));
    };
    const Tensor y = less ? checkpoint(f, x) : f(x);
    const uint64_t next = current_stream().next();
    const auto at = current_stream().position();
    Tensors grads = autograd::grad({ops::sum(y)}, {x});
    CHECK(current_stream().position() == at);
    return std::pair(grads, next);
  };
  const auto plain = run(false), less = run(true);
  same_bits(plain.first, less.first);
  CHECK(plain.second == less.second);

  // Another thread takes numbers while the function runs: the second run has those of the first.
  Tensor x = leaf({16}, 1), seen;
  int runs = 0;
  const Tensor y = checkpoint(
      [&](const Tensor& t) {
        const Tensor a = ops::rand({16});
        std::thread([] { (void)current_stream().next(); }).join();
        const Tensor factor = ops::mul(a, ops::rand({16}));
        if (runs++) CHECK(bit_equal(factor, seen));
        seen = factor;
        return ops::exp(ops::mul(ops::exp(t), factor));
      },
      x);
  autograd::backward(ops::sum(y));
  CHECK(runs == 2);
  // A stream that the function seeds anew keeps its place in the second run.
  const Tensor z = checkpoint(
      [](const Tensor& t) {
        manual_seed(9);
        return ops::exp(ops::dropout(ops::exp(t), 0.5));
      },
      x);
  manual_seed(4);
  const auto at = current_stream().position();
  autograd::backward(ops::sum(z));
  CHECK(current_stream().position() == at);
}

TEST_CASE("a function that computes something else the second time is an error") {
  const auto changing = [](auto second) {
    auto runs = std::make_shared<int>(0);
    Tensor x = leaf({4}, 1);
    const Tensor y = checkpoint(
        [runs, second](const Tensor& t) { return ++*runs == 1 ? ops::exp(ops::tanh(t)) : second(t); }, x);
    const std::string text = testing::text_of([&] { autograd::backward(ops::sum(y)); });
    CHECK_FALSE(x.grad().defined());
    return text;
  };
  CHECK_THAT(changing([](const Tensor& t) { return ops::exp(t); }),
             Contains("[checkpoint] the function saved 2 tensors, and 1"));
  CHECK_THAT(changing([](const Tensor& t) { return ops::exp(ops::exp(ops::exp(t))); }),
             Contains("more than 2"));
  CHECK_THAT(changing([](const Tensor& t) { return ops::exp(ops::sum(t)); }),
             Contains("[checkpoint] the function made float32 [] where it had made float32 [4] before"));
  CHECK_THAT(changing([](const Tensor& t) {
               Generator g;
               return noise(t, g);
             }),
             Contains("more random generators"));
  CHECK_THAT(changing([](const Tensor& t) { return ops::dropout(t, 0.5); }),
             Contains("drew more random numbers"));
  CHECK_THAT(changing([](const Tensor&) -> Tensor { throw_invalid("[f] no"); }), Contains("[f] no"));
}

TEST_CASE("inputs and parameters that were written in between are an error, with the writer's name") {
  const Tensor w = leaf({4}, 2), x = leaf({4}, 1).detach();
  const auto f = [w](const Tensor& t) { return ops::exp(ops::tanh(ops::add(t, w))); };
  const auto text = [&](const Tensor& written) {
    const Tensor y = checkpoint(f, x);
    {
      NoGradGuard off;
      ops::mul_(written, 2.0);
    }
    return testing::text_of([&] { autograd::backward(ops::sum(y)); });
  };
  CHECK_THAT(text(x), Contains("[checkpoint] input 0 (float32 [4]) was changed in place by mul_"));
  CHECK_THAT(text(w), Contains("[checkpoint] a parameter (float32 [4]) was changed in place by mul_"));
  CHECK_FALSE(w.grad().defined());
  CHECK_THAT(testing::text_of([&] { checkpoint(f, Tensor()); }), Contains("undefined"));
}

TEST_CASE("hooks that the function keeps run once a pass, though it runs twice") {
  for (const bool inner : {false, true}) {  // whether the input is a leaf, or a result
    const Tensor leaf_x = leaf({4}, 1), w = leaf({4}, 2), x = inner ? ops::mul(leaf_x, 1.0) : leaf_x;
    std::vector<int> ran(3);
    const auto f = [&](const Tensor& in) {
      const Tensor y = ops::mul(in, w);
      const Tensor all[] = {in, w, y};
      for (size_t i = 0; i < 3; ++i)
        autograd::register_hook(all[i], [&ran, i](const Tensor& g) {
          return ++ran[i], ops::mul(g, 0.5);
        }).keep();
      return ops::exp(y);
    };
    autograd::backward(ops::sum(checkpoint(f, x)));
    CHECK(ran == std::vector<int>{1, 1, 1});
    NoGradGuard guard;
    const Tensor of_y = ops::mul(ops::exp(ops::mul(leaf_x, w)), 0.5);
    CHECK(bit_equal(leaf_x.grad(), ops::mul(ops::mul(of_y, w), 0.5)));
    CHECK(bit_equal(w.grad(), ops::mul(ops::mul(of_y, leaf_x), 0.5)));
  }
}
