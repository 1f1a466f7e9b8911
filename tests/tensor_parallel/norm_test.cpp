// The norm of all gradients is that of one process, also of layers that are made of conversions alone.
#include <catch2/catch.hpp>

#include <cmath>

#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "parallel/tensor/convert.h"
#include "parallel/tensor/placement.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

constexpr int64_t kWidth = 4, kHidden = 6;

Tensor values(const Shape& shape, double by) {
  return sin(arange(shape.numel()).to(float64) * by).reshape(shape);
}
Tensor leaf(const Tensor& t) { return t.clone_data().requires_grad_(); }

// Two products and a shift, over the ranks of a group; the hidden dimension is cut, unless nothing is.
struct Rank : Actor {
  Rank(Mesh mesh, std::string dim, bool cuts, bool says_so) : group(mesh[dim]), cuts(cuts) {
    const size_t rank = group.rank();
    const auto own = [&](const Tensor& whole, int64_t along) {
      if (!cuts || group.size() == 1) return leaf(whole);
      const Tensor piece = leaf(
          tp::Placement::cut(whole.shape(), along, tp::even_sizes(kHidden, group.size()), rank).of(whole));
      if (says_so) tp::cut_parameter(piece);
      return piece;
    };
    up = own(values({kHidden, kWidth}, 0.7), 0);
    down = own(values({kWidth, kHidden}, 0.3), 1);
    shift = leaf(values({kWidth}, 1.1));
  }
  Task<Tensor> loss(Tensor x) {
    const bool alone = cuts && group.size() > 1;
    Tensor h = ops::linear(alone ? tp::enter(x, group) : x, up);
    if (!alone) h = tp::cut(h, group, 1);
    Tensor w = alone ? down : tp::cut(down, group, 1);
    const Tensor y = co_await tp::sum(ops::linear(ops::tanh(h), w), group);
    co_return ops::sum(ops::square(ops::add(y, shift)));
  }
  // What an optimizer of its own says: made in the actor's method.
  std::string own_optimizer(std::string name) {
    return testing::text_of([&] {
      if (name == "lbfgs")
        optim::LBFGS({shift, up});
      else
        optim::make(name, {}, {up, shift});
    });
  }
  Tensors parameters() override { return {up, down, shift}; }
  Group group;
  bool cuts;
  Tensor up, down, shift;
  static constexpr auto remote = methods<&Rank::loss, &Rank::own_optimizer>;
};

double norm_of_one_process(const Tensor& x) {
  const Tensors all{leaf(values({kHidden, kWidth}, 0.7)), leaf(values({kWidth, kHidden}, 0.3)),
                    leaf(values({kWidth}, 1.1))};
  const Tensor y = ops::linear(ops::tanh(ops::linear(x, all[0])), all[1]);
  autograd::backward(ops::sum(ops::square(ops::add(y, all[2]))));
  double squares = 0;
  for (const Tensor& t : all) squares += ops::sum(ops::square(t.grad())).item();
  return std::sqrt(squares);
}

TEST_CASE("optimizers that look at whole parameters refuse those that ranks have cut") {
  const auto cluster = Cluster::in_process(2, hosting<Rank>());
  {
    const auto model =
        parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"tp", 2}}), std::string("tp"), true, true);
    const auto check_refused = [](const std::string& said) {
      for (const char* part : {"looks at whole parameters", "[3, 4]", "tp::", "take adamw"})
        CHECK_THAT(said, Catch::Contains(part));
    };
    for (const char* name : {"lamb", "adafactor"}) {
      optim::DistributedOptimizer optimizer(model, name, {});
      check_refused(testing::error_of([&] { (void)optimizer.parameters_by_group(); }).what());
    }
    for (const char* name : {"lamb", "adafactor", "muon", "lbfgs"})
      for (const std::string& said : all(model.call<&Rank::own_optimizer>(std::string(name))).get())
        check_refused(said);
    for (const std::string& said : all(model.call<&Rank::own_optimizer>(std::string("adamw"))).get())
      CHECK(said == "no error");
    // Where nothing is cut, they are right.
    const auto whole =
        parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"tp", 2}}), std::string("tp"), false, false);
    CHECK_NOTHROW(optim::Distributed<optim::Adafactor>(whole, {}).parameters_by_group());
  }
  testing::nothing_left(*cluster);
}

}  // namespace

TEST_CASE("norms count copies once in layers that are made of conversions, whatever is cut") {
  const Tensor x = values({3, kWidth}, 0.9);
  const double right = norm_of_one_process(x);
  for (const bool cuts : {true, false})
    for (int n = 1; n <= 4; ++n) {
      CAPTURE(cuts, n);
      const auto cluster = Cluster::in_process(n, hosting<Rank>());
      {
        const auto model = parallel::spawn<Rank>(
            cluster->here(), Mesh(*cluster, {{"tp", static_cast<size_t>(n)}}), std::string("tp"), cuts, true);
        optim::Distributed<optim::SGD> optimizer(model, {.lr = 0.0});
        for (int i = 0; i < 2; ++i) {
          autograd::Context step(*cluster);
          step.backward(parallel::same_on_all(all(model.call<&Rank::loss>(x)).get()));
          CHECK(optimizer.clip_grad_norm(step, 1e9) == Approx(right).epsilon(1e-12));
          optimizer.step(step);
        }
      }
      testing::nothing_left(*cluster);
    }
}

TEST_CASE(
    "a parameter that differs between ranks, and that nobody calls cut, is refused before anything is "
    "clipped") {
  const Tensor x = values({3, kWidth}, 0.9);
  const auto cluster = Cluster::in_process(2, hosting<Rank>());
  {
    const auto model =
        parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"tp", 2}}), std::string("tp"), true, false);
    optim::Distributed<optim::SGD> optimizer(model, {.lr = 0.0});
    autograd::Context step(*cluster);
    step.backward(parallel::same_on_all(all(model.call<&Rank::loss>(x)).get()));
    const Error e = testing::error_of([&] { optimizer.clip_grad_norm(step, 1e-3); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains("[clip_grad_norm] ") && Catch::Contains(" on w0") &&
                             Catch::Contains(" on w1") && Catch::Contains("say tp::cut_parameter(p)"));
    // Another model on the same workers does not count for this one.
    const auto other =
        parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"tp", 2}}), std::string("tp"), true, true);
    optim::Distributed<optim::SGD> of_other(other, {.lr = 0.0});
    step.backward(parallel::same_on_all(all(other.call<&Rank::loss>(x)).get()));
    CHECK(of_other.clip_grad_norm(step, 1e9) == Approx(norm_of_one_process(x)).epsilon(1e-12));
  }
  testing::nothing_left(*cluster);
}
