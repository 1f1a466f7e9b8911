// Meta-learning over two workers: inner steps along gradients of weights that are themselves results, in
// actors, and a last pass through all of them. And what stops at inputs, and what does not.
#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "autograd/hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

constexpr int64_t kIn = 3, kMiddle = 5, kOut = 2;
constexpr double kRate = 0.125;

Tensor start(const Shape& shape, uint64_t seed) {
  Generator random(seed);
  return ops::to(ops::randn(shape, random), DType::float64).requires_grad_();
}
Tensor layer(const Tensor& x, const Tensor& w, const Tensor& c) {
  return ops::tanh(ops::add(ops::matmul(x, w), c));
}
Tensor loss_of(const Tensor& y) { return ops::mul(y, y).sum(); }
Tensor batch(uint64_t seed) { return start({4, kIn}, seed).detach(); }

struct Half : Actor {
  Half(int64_t in, int64_t out, int64_t seed)
      : w(start({in, out}, uint64_t(seed))), c(start({out}, uint64_t(seed) + 100)) {}
  void begin() { autograd::set_context_inputs({w, c}); }
  void begin_with(bool weight) { autograd::set_context_inputs({weight ? w : c}); }
  Tensor forward(Tensor x) {
    const Tensors fast = autograd::context_inputs();
    Tensor y = fast.size() == 2 ? layer(x, fast[0], fast[1]) : layer(x, w, c);
    if (fail)
      autograd::register_hook(y, [](const Tensor&) -> Tensor {
        throw std::runtime_error("bad gradient");
      }).keep();
    return y;
  }
  void adapt(double rate) {
    Tensors fast;
    for (const Tensor& t : autograd::context_inputs())
      fast.push_back(ops::sub(t, ops::mul(autograd::take_context_gradient(t), rate)));
    autograd::set_context_inputs(fast);
  }
  Tensors gradients() { return {autograd::context_gradient(w), autograd::context_gradient(c)}; }
  Tensors of_inputs() {
    Tensors out;
    for (const Tensor& t : autograd::context_inputs()) out.push_back(autograd::context_gradient(t));
    return out;
  }
  void set_fail(bool on) { fail = on; }
  std::string wrong(int64_t which) {
    const Tensors bad[] = {{w, Tensor()}, {w, zeros({2})}, {w, c, w}};
    return testing::text_of([&] { autograd::set_context_inputs(bad[which]); });
  }
  Tensor w, c;
  bool fail = false;
  static constexpr auto remote = methods<&Half::begin, &Half::begin_with, &Half::forward, &Half::adapt,
                                         &Half::gradients, &Half::of_inputs, &Half::set_fail, &Half::wrong>;
};

struct Split {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(3, hosting<Half>());
  RRef<Half> a = cluster->spawn<Half>("w1", kIn, kMiddle, 1),
             b = cluster->spawn<Half>("w2", kMiddle, kOut, 2);
  Tensor forward(const Tensor& x) {
    const auto h = a.call<&Half::forward>(x);  // through here, whatever the timing: messages are counted
    return b.call<&Half::forward>(h).get();
  }
  void begin() { all(std::vector{a.call<&Half::begin>(), b.call<&Half::begin>()}).get(); }
  void adapt() { all(std::vector{a.call<&Half::adapt>(kRate), b.call<&Half::adapt>(kRate)}).get(); }
  Tensors gradients() {
    Tensors out = a.call<&Half::gradients>().get();
    for (const Tensor& t : b.call<&Half::gradients>().get()) out.push_back(t);
    return out;
  }
  /// The gradients after `steps` inner steps on batches of `task`.
  Tensors learn(int steps, uint64_t task) {
    autograd::Context context(*cluster);
    begin();
    for (int k = 0; k < steps; ++k) {
      context.backward(loss_of(forward(batch(task + uint64_t(k)))), {},
                       {.create_graph = true, .only_inputs = true});
      adapt();
    }
    context.backward(loss_of(forward(batch(task + 50))));
    Tensors out = gradients();
    context.end().get();
    return out;
  }
  int64_t count(const char* what) {
    int64_t n = 0;
    for (const auto& name : cluster->workers()) n += cluster->metrics(name)[what];
    return n;
  }
};

// The same without actors.
Tensors learn(int steps, uint64_t task) {
  const Half a(kIn, kMiddle, 1), b(kMiddle, kOut, 2);
  const Tensors slow{a.w, a.c, b.w, b.c};
  const auto forward = [](const Tensors& p, const Tensor& x) {
    return layer(layer(x, p[0], p[1]), p[2], p[3]);
  };
  Tensors fast = slow;
  for (int k = 0; k < steps; ++k) {
    const Tensors g =
        autograd::grad({loss_of(forward(fast, batch(task + uint64_t(k))))}, fast, {}, {.create_graph = true});
    for (size_t i = 0; i < 4; ++i) fast[i] = ops::sub(fast[i], ops::mul(g[i], kRate));
  }
  return autograd::grad({loss_of(forward(fast, batch(task + 50)))}, slow);
}

bool close(const Tensors& got, const Tensors& want) {
  if (got.size() != want.size()) return false;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto a = got[i].detach().to_vector<double>(), b = want[i].detach().to_vector<double>();
    if (a.size() != b.size()) return false;
    for (size_t k = 0; k < a.size(); ++k)
      if (!(std::abs(a[k] - b[k]) <= 1e-12 * (1 + std::abs(b[k])))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("meta-learning with one to four inner steps has the gradients of a local run") {
  Split split;
  for (int steps = 1; steps <= 4; ++steps) {
    INFO(steps << " inner steps");
    CHECK(close(split.learn(steps, 7), learn(steps, 7)));
  }
  nothing_left(*split.cluster);
}

TEST_CASE("tasks side by side have fast weights of their own") {
  Split split;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t task : {100, 200, 300})
    threads.emplace_back([&, task] {
      for (int i = 0; i < 10; ++i) try {
          if (!close(split.learn(2, task), learn(2, task))) ++wrong;
        } catch (const std::exception&) {
          ++wrong;
        }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  nothing_left(*split.cluster);
}

TEST_CASE("the messages of an inner step: gradients and wants stay as many, however many steps came before") {
  Split split;
  autograd::Context context(*split.cluster);
  split.begin();
  for (int k = 0; k < 3; ++k) {
    Tensor loss = loss_of(split.forward(batch(uint64_t(k))));
    const int64_t gradients = split.count("gradient_messages_sent"),
                  wants = split.count("want_messages_sent"), reach = split.count("reach_messages_sent");
    context.backward(loss, {}, {.create_graph = true, .only_inputs = true});
    CHECK(split.count("gradient_messages_sent") - gradients == 3);
    CHECK(split.count("want_messages_sent") - wants == 5);
    CHECK(split.count("reach_messages_sent") - reach == 3 + 6 * k);
    for (const Tensor& t : split.gradients())
      CHECK(t.defined() == (k == 0));  // later ones stop at fast weights
    split.adapt();
  }
}

TEST_CASE("a pass with only inputs changes no other gradient, and frees what it ran") {
  Split split;
  {
    autograd::Context context(*split.cluster);
    const Tensor x = start({4, kIn}, 7);
    split.a.call<&Half::begin_with>(true).get();
    Tensor loss = loss_of(split.forward(x));
    context.backward(loss, {}, {.retain_graph = true, .only_inputs = true});
    Tensors got = split.gradients();
    CHECK(got[0].defined());
    CHECK_FALSE(got[0].requires_grad());
    for (size_t i : {1, 2, 3}) CHECK_FALSE(got[i].defined());
    CHECK_FALSE(context.grad(x).defined());
    const auto once = got[0].to_vector<double>();
    context.backward(loss, {}, {.retain_graph = true});  // adds to it, and serves the others
    got = split.gradients();
    for (const Tensor& t : got) CHECK(t.defined());
    for (size_t i = 0; i < once.size(); ++i) CHECK(got[0].to_vector<double>()[i] == 2 * once[i]);
    // Inputs of whoever starts the pass, beside those of actors.
    autograd::set_context_inputs({x});
    split.a.call<&Half::begin_with>(false).get();
    context.backward(loss, {}, {.only_inputs = true});
    CHECK(context.grad(x).defined());
    CHECK(autograd::context_inputs().size() == 1);
    autograd::set_context_inputs({});
    CHECK(autograd::context_inputs().empty());
    CHECK_THAT(error_of([&] { context.backward(loss, {}, {.only_inputs = true}); }).what(),
               Catch::Contains("retain_graph"));
    context.end().get();
  }
  nothing_left(*split.cluster);
}

TEST_CASE("wrong inputs are refused, and a pass that comes by none says so") {
  Split split;
  CHECK_THAT(error_of([] { autograd::context_inputs(); }).what(), Catch::Contains("no context is active"));
  {
    autograd::Context context(*split.cluster);
    CHECK_THAT(split.a.call<&Half::wrong>(0).get(),
               Catch::Contains("[set_context_inputs] tensor 1 is undefined"));
    CHECK_THAT(split.a.call<&Half::wrong>(1).get(), Catch::Contains("needs no gradient"));
    CHECK_THAT(split.a.call<&Half::wrong>(2).get(), Catch::Contains("tensors 0 and 2 are the same"));
    Tensor loss = loss_of(split.forward(batch(7)));
    const Error none = error_of([&] { context.backward(loss, {}, {.only_inputs = true}); });
    CHECK(none.kind() == ErrorKind::invalid);
    CHECK_THAT(none.what(), Catch::Contains("set_context_inputs()"));
    CHECK_THAT(error_of([&] { context.grad({loss}, {loss}, {}, {.only_inputs = true}); }).what(),
               Catch::Contains("[grad] only_inputs is for backward()"));
    split.begin();
    context.backward(loss, {}, {.only_inputs = true});  // nothing was freed
    CHECK(split.gradients()[3].defined());
    context.end().get();
  }
  nothing_left(*split.cluster);
}

TEST_CASE("an inner step that fails leaves gradients and graph as they were, and can be made again") {
  Split split;
  {
    autograd::Context context(*split.cluster);
    split.begin();
    const autograd::BackwardOptions inner{.create_graph = true, .only_inputs = true};
    context.backward(loss_of(split.forward(batch(7))), {}, inner);
    split.adapt();
    const int64_t sends = split.count("send_nodes");
    split.a.call<&Half::set_fail>(true).get();
    for (int i = 0; i < 5; ++i) {
      Tensor loss = loss_of(split.forward(batch(8)));
      const int64_t forward = split.count("send_nodes");
      CHECK_THAT(error_of([&] { context.backward(loss, {}, inner); }).what(),
                 Catch::Contains("bad gradient") && Catch::Contains("backward on w1 ("));
      CHECK(split.count("send_nodes") == forward);
      for (const Tensor& t : split.b.call<&Half::of_inputs>().get()) CHECK_FALSE(t.defined());
    }
    CHECK(split.count("send_nodes") > sends);
    split.a.call<&Half::set_fail>(false).get();
    context.backward(loss_of(split.forward(batch(8))), {}, inner);
    split.adapt();
    context.backward(loss_of(split.forward(batch(7 + 50))));
    CHECK(close(split.gradients(), learn(2, 7)));
    context.end().get();
  }
  nothing_left(*split.cluster);
}
