// docs/howto/custom-functions.md, compiled and run: functions and operators of one's own, here and in actors
// of other workers, beside those of Troupe that do the same.
#include <catch2/catch.hpp>
#include <iostream>

#include "autograd/checkpoint.h"
#include "autograd/opcheck.h"
#include "core/graph/anomaly.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/gradient_rules.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "tests/support/two_workers.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::difference, testing::invalid_text, testing::nothing_left;

namespace {

struct Square : autograd::Function<Square> {
  static Tensor forward(Ctx& ctx, Tensor x) {
    ctx.save_for_backward({x});
    return x * x;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) { return {grads[0] * 2 * ctx.saved_tensors()[0]}; }
};

struct Power : autograd::Function<Power> {
  struct Ctx : autograd::FunctionCtx {
    double exponent = 0;
  };
  static Tensor forward(Ctx& ctx, Tensor x, double exponent) {
    ctx.exponent = exponent;
    ctx.save_for_backward({x});
    return pow(x, exponent);
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    return {grads[0] * ctx.exponent * pow(ctx.saved_tensors()[0], ctx.exponent - 1), Tensor()};
  }
};

const ops::Op kCube{
    .name = "cube",
    .text = "x x x of each element.",
    .shape = ops::floating_unary,
    .saves_inputs = 1,
    .gradient = [](const ops::Backward& b) -> Tensors { return {b.grads[0] * square(b.in[0]) * 3}; },
    .samples = []() -> std::vector<ops::Sample> {
      return {{{ops::sample({3, 4})}}, {{ops::sample({0, 2})}}};
    }};

template <class T>
void cube_of(const Tensor& x, const Tensor& y) {
  const Tensor in = x.contiguous_data();  // inputs have any strides, results are contiguous
  for (int64_t i = 0; i < in.numel(); ++i)
    y.data<T>()[i] = in.data<T>()[i] * in.data<T>()[i] * in.data<T>()[i];
}

void cube_on_cpu(const ops::Call& c, Tensors& out) {
  c.in[0].dtype() == float32 ? cube_of<float>(c.in[0], out[0]) : cube_of<double>(c.in[0], out[0]);
}

Tensor cube(const Tensor& x) { return ops::apply1(kCube, {x}); }

void register_cube() {
  static const bool once = [] {
    ops::register_kernel(kCube, Device::Kind::cpu, cube_on_cpu);
    return true;
  }();
  (void)once;
}

Tensor leaf(const Shape& shape, uint64_t seed) { return ops::sample(shape, -1, 1, seed).requires_grad_(); }

// The same layer with functions and operators of its own, or with Troupe's.
struct Layer : Actor {
  Layer(bool own, bool again, uint64_t seed) : own(own), again(again), w(leaf({3, 3}, seed)) {}
  Tensor body(const Tensor& x) {
    const Tensor h = x.matmul(w);
    return own ? cube(Power::apply(Square::apply(h) + 1, 0.5)) : pow(square(h) + 1, 1.5);
  }
  Tensor forward(Tensor x) {
    return again ? autograd::checkpoint([this](const Tensor& t) { return body(t); }, x) : body(x);
  }
  Tensor broken(Tensor x) { return Power::apply(x - x, -1.0); }
  Tensor gradient() { return autograd::context_gradient(w); }
  bool own, again;
  Tensor w;
  static constexpr auto remote = methods<&Layer::forward, &Layer::broken, &Layer::gradient>;
};

int64_t count(Cluster& cluster, const std::string& what) {
  int64_t n = 0;
  for (const auto& name : cluster.workers()) n += cluster.metrics(name)[what];
  return n;
}

}  // namespace

TEST_CASE("the page's function, its check and its operator do what it says") {
  Tensor x = leaf({4}, 1);
  {
    Tensor y = Square::apply(x);
    CHECK(difference(y, square(x), 0, 0) == "");
  }
  auto report = autograd::gradcheck([](const Tensors& in) { return Power::apply(in[0], 3); }, {x});
  if (!report.ok) throw std::runtime_error(report.text);  // gradgradcheck: the second derivative
  CHECK(autograd::gradgradcheck([](const Tensors& in) { return Power::apply(in[0], 3); }, {x}).ok);

  register_cube();
  for (const std::string& wrong : autograd::opcheck(kCube)) std::cerr << wrong << "\n";
  CHECK(autograd::opcheck(kCube).empty());
  CHECK(cube(x).grad_fn().node->name() == "cube");
  CHECK(difference(cube(x.to(bfloat16)), pow(x.to(bfloat16), 3.0), 0.02, 0) == "");
}

namespace {

ops::Op of(const char* name, ops::GradientRule* gradient = nullptr) {
  ops::Op op = kCube;
  op.name = name;
  if (gradient) op.gradient = gradient;
  return op;
}

}  // namespace

TEST_CASE("opcheck says what is wrong with an operator") {
  const ops::Op half = of(
      "half_of_it", [](const ops::Backward& b) -> Tensors { return {b.grads[0] * square(b.in[0]) * 1.5}; });
  ops::register_kernel(half, Device::Kind::cpu, cube_on_cpu);
  const auto texts = autograd::opcheck(half);
  REQUIRE(!texts.empty());
  CHECK_THAT(texts[0], Contains("[half_of_it] sample 0, gradient: input 0: element 0 of float64 [3, 4] is"));

  const ops::Op dense = of("dense_only");
  ops::register_kernel(dense, Device::Kind::cpu, [](const ops::Call& c, Tensors& out) {
    for (int64_t i = 0; i < out[0].numel(); ++i)  // as if every input were contiguous
      out[0].dtype() == float32 ? out[0].data<float>()[i] = std::pow(c.in[0].data<float>()[i], 3.0F)
                                : out[0].data<double>()[i] = std::pow(c.in[0].data<double>()[i], 3.0);
  });
  std::string all;
  for (const std::string& text : autograd::opcheck(dense)) all += text + "\n";
  CHECK_THAT(all, Contains("[dense_only] sample 0, strided inputs: result 0: element 1"));

  ops::Op bare = of("bare");
  bare.samples = nullptr;
  CHECK_THAT(invalid_text([&] { autograd::opcheck(bare); }), Contains("[opcheck] bare has no samples"));
}

TEST_CASE("a kernel is registered once, for an operator with a shape rule and a name of its own") {
  register_cube();
  const auto text = [](const ops::Op& op, Device::Kind kind = Device::Kind::cpu,
                       ops::Kernel* kernel = cube_on_cpu) {
    return invalid_text([&] { ops::register_kernel(op, kind, kernel); });
  };
  CHECK_THAT(text(kCube), Contains("cube has a kernel for this kind of device already"));
  CHECK_THAT(text(ops::kRelu), Contains("relu has a kernel for this kind of device already"));
  CHECK_THAT(text(of("relu")), Contains("there is an operator named relu already: choose another name"));
  CHECK_THAT(text(of("cube_")), Contains("names that end with _"));
  CHECK_THAT(text(of("other"), Device::Kind{99}), Contains("a kind from 0 to 7 is expected, got 99"));
  CHECK_THAT(text(of("other"), Device::Kind::cpu, nullptr), Contains("the kernel of other is null"));
  ops::Op view = of("a_view");
  view.shape = nullptr;
  CHECK_THAT(text(view), Contains("a_view has no shape rule"));
  const ops::Op same_name = of("relu"), none = of("other");  // a name finds no kernel of Troupe's
  for (const ops::Op* op : {&same_name, &none})
    CHECK_THROWS_WITH(ops::apply1(*op, {zeros({2})}), Contains("no kernel for device cpu"));
}

TEST_CASE("in actors of other workers they give the gradients of Troupe's operators, in both modes") {
  register_cube();
  auto cluster = Cluster::in_process(3, hosting<Layer>());
  for (const bool again : {false, true}) {
    std::vector<RRef<Layer>> a, b;
    for (const bool own : {false, true}) {
      a.push_back(cluster->spawn<Layer>("w1", own, again, uint64_t{2}));
      b.push_back(cluster->spawn<Layer>("w2", own, again, uint64_t{3}));
    }
    for (const bool unused : {false, true}) {
      Tensors got[2];
      for (const size_t own : {0, 1}) {
        const int64_t before = count(*cluster, "reach_messages_sent");
        autograd::Context context(*cluster);
        Tensor x = leaf({2, 3}, 4);
        const Tensor h = a[own](x).get();
        Tensor ignored;
        if (unused) ignored = b[own](h).get();  // a branch that the loss does not use
        context.backward(sum(b[own](h).get()));
        CHECK((count(*cluster, "reach_messages_sent") > before) == unused);
        got[own] = {context.grad(x), a[own].call<&Layer::gradient>().get(),
                    b[own].call<&Layer::gradient>().get()};
      }
      for (size_t i = 0; i < got[0].size(); ++i) CHECK(difference(got[1][i], got[0][i], 1e-12, 1e-13) == "");
    }
    Tensors second[2];
    for (const size_t own : {0, 1}) {
      autograd::Context context(*cluster);
      Tensor x = leaf({2, 3}, 4);
      const Tensor g = context.grad({sum(b[own](a[own](x)).get())}, {x}, {}, {.create_graph = true})[0];
      second[own] = context.grad({sum(square(g))}, {x});
    }
    CHECK(difference(second[1][0], second[0][0], 1e-11, 1e-12) == "");
  }
  nothing_left(*cluster);
}

TEST_CASE("through sockets, too, and what goes wrong there has the function's name") {
  register_cube();
  testing::TwoWorkers two(hosting<Layer>());
  auto layer = two.spawn<Layer>(true, false, uint64_t{5}),
       plain = two.spawn<Layer>(false, false, uint64_t{5});
  Tensors got;
  for (const auto& one : {layer, plain}) {
    autograd::Context context(two.worker(0));
    Tensor x = leaf({2, 3}, 6);
    context.backward(sum(one(x).get()));
    got.push_back(context.grad(x));
  }
  CHECK(difference(got[0], got[1], 1e-12, 1e-13) == "");

  AnomalyGuard on(Anomaly::inf);
  autograd::Context context(two.worker(0));
  CHECK_THROWS_WITH(layer.call<&Layer::broken>(leaf({2, 3}, 7)).get(), Contains("has an infinity at [0, 0]"));
}
