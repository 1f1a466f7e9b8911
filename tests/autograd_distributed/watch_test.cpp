// Hooks after accumulation and ready hooks in passes over several workers.
#include <catch2/catch.hpp>

#include "autograd/ready_hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

// "0:6 1:- ": parameter 0 has the gradient 6, 1 has none.
void note(std::string& told, size_t i, const Tensor& grad) {
  told += std::to_string(i) + ":" + (grad.defined() ? std::to_string(int64_t(grad.item())) : "-") + " ";
}

struct Layer : Actor {
  explicit Layer(bool fails) {
    for (int i = 0; i < 3; ++i) {
      w.push_back(full({1}, i + 2, float32));
      w.back().requires_grad_();
    }
    ready = autograd::register_ready_hook(w, [this, fails](size_t i, const Tensor& grad) {
      if (fails && i == 2) throw std::runtime_error("the hook is broken");
      if (grad.defined() && autograd::context_gradient(w[i]).item() != grad.item()) told += "wrong ";
      note(told, i, grad);
    });
    after = autograd::register_post_accumulate_grad_hook(
        w[1], [this](const Tensor& grad) { posts.push_back(grad.item()); });
  }
  Tensor use(Tensor x, int64_t i) { return ops::mul(x, w[size_t(i)]); }
  Tensor both(Tensor x) { return ops::mul(ops::mul(x, w[0]), w[1]); }
  std::string take_told() { return std::exchange(told, ""); }
  std::vector<double> seen() { return posts; }
  Tensors w;
  autograd::WatchHandle ready, after;
  std::string told;
  std::vector<double> posts;
  static constexpr auto remote = methods<&Layer::use, &Layer::both, &Layer::take_told, &Layer::seen>;
};

Tensor leaf(float v) {
  Tensor t = tensor({v});
  t.requires_grad_();
  return t;
}

}  // namespace

TEST_CASE("parameters of actors are told ready once per pass, those without a gradient at its end") {
  auto cluster = Cluster::in_process(3, hosting<Layer>());
  auto a = cluster->spawn<Layer>("w1", false), b = cluster->spawn<Layer>("w2", false),
       idle = cluster->spawn<Layer>("w2", false);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(1);
    Tensor h = a.call<&Layer::both>(x).get();  // w0 w1 = 6
    context.backward(b.call<&Layer::use>(h, 2).get());
    CHECK(a.call<&Layer::take_told>().get() == "1:8 0:12 2:- ");  // 2 3 4: nearest to the loss first
    CHECK(b.call<&Layer::take_told>().get() == "2:6 0:- 1:- ");
    CHECK(idle.call<&Layer::take_told>().get() == "");
    CHECK(a.call<&Layer::seen>().get() == std::vector<double>{8});
    CHECK(b.call<&Layer::seen>().get().empty());
    context.backward(a.call<&Layer::use>(x, 1).get());  // adds to the context
    CHECK(a.call<&Layer::take_told>().get() == "1:9 0:- 2:- ");
    CHECK(a.call<&Layer::seen>().get() == std::vector<double>{8, 9});
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a parameter that several messages reach is told ready when the last has come") {
  auto cluster = Cluster::in_process(3, hosting<Layer>());
  auto a = cluster->spawn<Layer>("w1", false), b = cluster->spawn<Layer>("w2", false);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(1);
    Tensor y = x;
    for (int i = 0; i < 3; ++i) y = b.call<&Layer::use>(a.call<&Layer::use>(y, 1).get(), 0).get();
    y = ops::add(y, a.call<&Layer::use>(x, 1).get());  // (3 2)^3 + 3
    const auto before = cluster->metrics("w0")["reach_messages_sent"];
    context.backward(y);
    CHECK(cluster->metrics("w0")["reach_messages_sent"] > before);  // so the pass was exact
    CHECK(a.call<&Layer::take_told>().get() == "1:217 0:- 2:- ");   // 3 * 9 * 8 + 1
    CHECK(b.call<&Layer::take_told>().get() == "0:324 1:- 2:- ");
    CHECK(a.call<&Layer::seen>().get() == std::vector<double>{217});
    // A pass that gives parts of the graph no gradient still tells each parameter once.
    Tensor none = ops::mul(a.call<&Layer::use>(x, 1).get(), zeros({1}));
    context.backward(ops::add(none, b.call<&Layer::use>(x, 1).get()));
    CHECK(a.call<&Layer::take_told>().get() == "1:217 0:- 2:- ");
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("ready hooks of the worker that starts the pass, also where the graph comes home") {
  auto cluster = Cluster::in_process(2, hosting<Layer>());
  auto a = cluster->spawn<Layer>("w1", false), home = cluster->spawn<Layer>("w0", false);
  const Tensor v = leaf(5), unused = leaf(1);
  std::string told;
  auto handle =
      autograd::register_ready_hook({v, unused}, [&](size_t i, const Tensor& g) { note(told, i, g); });
  autograd::Context context(*cluster);
  Tensor y = home.call<&Layer::use>(a.call<&Layer::use>(ops::mul(v, v), 2).get(), 0).get();
  context.backward(ops::mul(y, v));  // v^3 4 2
  CHECK(told == "0:600 1:- ");
  CHECK(a.call<&Layer::take_told>().get() == "2:250 0:- 1:- ");
  CHECK(home.call<&Layer::take_told>().get() == "0:500 1:- 2:- ");
}

TEST_CASE(
    "a ready hook that throws, at the end of the pass or before, fails the pass, which leaves nothing") {
  auto cluster = Cluster::in_process(3, hosting<Layer>());
  auto broken = cluster->spawn<Layer>("w1", true), b = cluster->spawn<Layer>("w2", false);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(1);
    for (int64_t reached : {0, 2}) {  // 2: at the end
      Tensor y = b.call<&Layer::use>(broken.call<&Layer::use>(x, 2 - reached).get(), 1).get();
      const Error e = error_of([&] { context.backward(y); });
      CHECK_THAT(e.what(), Catch::Contains("the hook is broken") && Catch::Contains("backward on w1 ("));
      CHECK_FALSE(context.grad(x).defined());
    }
    context.end().get();
  }
  nothing_left(*cluster);
}
