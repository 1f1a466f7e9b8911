// One graph, or the same leaves, differentiated by several threads at a time.
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "autograd/autograd.h"
#include "autograd/function.h"
#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using autograd::Function, autograd::FunctionCtx;

namespace {

constexpr int kThreads = 4, kRounds = 200;

// All begin together.
void on_threads(const std::function<void(int)>& work) {
  std::atomic<int> waiting{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      ++waiting;
      while (waiting < kThreads) std::this_thread::yield();
      work(t);
    });
  for (std::thread& t : threads) t.join();
}

// Saves an argument and its result, and counts in its Ctx.
struct Cube : Function<Cube> {
  struct Ctx : FunctionCtx {
    int runs = 0;
  };
  static Tensor forward(Ctx& ctx, Tensor x, Tensor w) {
    Tensor y = x * x * x;
    ctx.save_for_backward({x, w, y});
    return y * w;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    ++ctx.runs;
    most = std::max(most, ctx.runs);
    const Tensors& saved = ctx.saved_tensors();
    const Tensor &x = saved.at(0), &w = saved.at(1), &y = saved.at(2);
    const bool first = ctx.needs_input_grad(0), second = ctx.needs_input_grad(1);
    return {first ? grads[0] * w * x * x * 3 : Tensor(), second ? grads[0] * y : Tensor()};
  }
  static inline int most = 0;
};

struct Loops : Function<Loops> {
  static constexpr bool once_differentiable = true;
  static Tensor forward(Ctx& ctx, Tensor x) {
    ctx.save_for_backward({x});
    return x * x;
  }
  static Tensor backward(Ctx& ctx, const Tensors& grads) { return grads[0] * ctx.saved_tensors()[0] * 2; }
};

Tensor leaf(double value) { return full({8}, value, float64).requires_grad_(); }

Tensor plain_cube(const Tensor& x, const Tensor& w) { return x * x * x * w; }

}  // namespace

TEST_CASE("threads differentiate one graph with a function of one's own, and get what one gets") {
  const Tensor x = leaf(2), w = leaf(3);
  const Tensor y = ops::sum(Cube::apply(x, w) + Loops::apply(x));
  Cube::most = 0;
  std::atomic<int> wrong{0};
  on_threads([&](int t) {
    for (int i = 0; i < kRounds; ++i) {
      // Each with other inputs, so that other gradients are needed of the same step.
      const Tensors in = t % 2 ? Tensors{x} : Tensors{w, x};
      const Tensors g = autograd::grad({y}, in, {}, {.retain_graph = true});
      wrong += g.back().to_vector<double>()[7] != 3 * 4 * 3 + 4;
      if (g.size() == 2) wrong += g[0].to_vector<double>()[0] != 8;
    }
  });
  CHECK(wrong == 0);
  CHECK(Cube::most == kThreads * kRounds);  // they take turns
}

TEST_CASE("threads record their passes over one graph") {
  const Tensor x = leaf(2), w = leaf(3);
  for (const bool own : {false, true}) {
    const Tensor y = ops::sum(own ? Cube::apply(x, w) : plain_cube(x, w));
    std::atomic<int> wrong{0};
    on_threads([&](int) {
      for (int i = 0; i < kRounds; ++i) {
        const Tensor g = autograd::grad({y}, {x}, {}, {.create_graph = true})[0];
        const Tensor second = autograd::grad({ops::sum(g)}, {x}, {}, {.retain_graph = true})[0];
        wrong += second.to_vector<double>()[3] != 6 * 2 * 3;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("of threads that free one graph each gets its gradients or hears that it is freed") {
  const Tensor x = leaf(2), w = leaf(3);
  for (const char* kind : {"operators", "function", "checkpoint"}) {
    INFO(kind);
    std::atomic<int> wrong{0}, none{0};
    for (int i = 0; i < kRounds; ++i) {
      const auto f = [&](const Tensor& t) {
        return kind[0] == 'f' ? Cube::apply(t, w) + Loops::apply(t) : plain_cube(t, w) + t * t;
      };
      const Tensor y = ops::sum(kind[0] == 'c' ? autograd::checkpoint(f, x) : f(x));
      std::atomic<int> done{0};
      on_threads([&](int) {
        try {
          wrong += autograd::grad({y}, {x})[0].to_vector<double>()[5] != 40;
          ++done;
        } catch (const Error& e) {
          wrong += e.message().find("pass retain_graph") == std::string::npos;
        }
      });
      none += done == 0;
    }
    CHECK(wrong == 0);
    CHECK(none < kRounds);  // two may stop each other
  }
}

TEST_CASE("threads add to the gradient of one leaf") {
  for (const int64_t n :
       {int64_t{4}, int64_t{128}}) {  // few elements, and so many that a step adds to the sum
    Tensor w = full({n, n}, 0.5).requires_grad_();
    const Tensor x = ones({2, n});
    on_threads([&](int) {
      for (int i = 0; i < kRounds; ++i) ops::sum(ops::matmul(x, w)).backward();
    });
    CHECK(bit_equal(w.grad(), full({n, n}, 2.0 * kThreads * kRounds)));
  }
}
