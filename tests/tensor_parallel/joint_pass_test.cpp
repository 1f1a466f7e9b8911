// Passes that come by the ranks of one group of a mesh, and not by those of another.
#include <catch2/catch.hpp>

#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "parallel/tensor/convert.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct Rank : Actor {
  explicit Rank(Mesh mesh) : mesh(std::move(mesh)), w(full({2}, 1.0, float64).requires_grad_()) {}
  Task<Tensor> run(Tensor x) {
    const Tensor y = co_await tp::sum(tp::enter(w, mesh["tp"]) * x, mesh["tp"]);
    co_return ops::sum(y);
  }
  Tensor gradient() { return autograd::context_gradient(w); }
  Mesh mesh;
  Tensor w;
  static constexpr auto remote = methods<&Rank::run, &Rank::gradient>;
};

}  // namespace

TEST_CASE("the loss may come by all ranks of one replica, by some of them it is refused before anything runs") {
  const auto cluster = Cluster::in_process(4, hosting<Rank>());
  {
    const auto model = parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"dp", 2}, {"tp", 2}}));
    autograd::Context step(*cluster);
    const Tensors ys = all(model.call<&Rank::run>(full({2}, 3.0, float64))).get();
    for (const Tensor& loss : {ys[0] * 1, ys[0] + ys[2], ys[3] + ys[0] + ys[1]}) {
      const Error e = testing::error_of([&] { step.backward(loss); });
      CHECK(e.kind() == ErrorKind::invalid);
      CHECK_THAT(e.what(), Contains("[backward] the loss comes by what ") && Contains("Rank::run on w") &&
                               Contains("parallel::same_on_all(results)"));
    }
    step.backward(parallel::same_on_all({ys[2], ys[3]}));
    for (size_t r = 0; r < 4; ++r) {
      const Tensor g = model.actors()[r].call<&Rank::gradient>().get();
      CHECK((r < 2 ? !g.defined() : g.equal(full({2}, 6.0, float64))));
    }
  }
  testing::nothing_left(*cluster);
}
