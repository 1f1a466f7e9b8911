// Passes that come by some parts of a call of several actors, and not by others.
#include <catch2/catch.hpp>

#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;

namespace {

// Its gradients are summed over the ranks.
struct Meet : autograd::Function<Meet> {
  struct Ctx : autograd::FunctionCtx {
    Group group;
  };
  static Tensor forward(Ctx& ctx, Tensor x, Group group) {
    ctx.group = group;
    return x * 1;
  }
  static Task<Tensors> backward(Ctx& ctx, Tensors grads) {
    const Future<Tensor> summing = ctx.group.all_reduce(grads[0]);
    const Tensor sum = co_await summing;
    co_return Tensors{sum, Tensor()};
  }
};

struct Rank : Actor {
  explicit Rank(Mesh mesh) : mesh(std::move(mesh)), w(full({2}, 1.0, float64).requires_grad_()) {}
  Tensor meets(Tensor x) { return ops::sum(Meet::apply(w * x, mesh["tp"])); }
  Tensor plain(Tensor x) { return ops::sum(w * x); }
  Tensor doubled(Tensor x) { return x * 2; }
  Tensor gradient() { return autograd::context_gradient(w); }
  Mesh mesh;
  Tensor w;
  static constexpr auto remote = methods<&Rank::meets, &Rank::plain, &Rank::doubled, &Rank::gradient>;
};

struct World {
  ~World() {
    nothing_left(*cluster);
    for (const auto& name : cluster->workers())
      while (cluster->metrics(name)["collectives"] != 0) std::this_thread::yield();
  }
  template <auto M>
  Tensors call() {
    return all(model.call<M>(full({2}, 3.0, float64))).get();
  }
  void check_gradients(double each) {
    for (const Tensor& g : all(model.call<&Rank::gradient>()).get())
      CHECK((each == 0 ? !g.defined() : g.equal(full({2}, each, float64))));
  }
  std::unique_ptr<Cluster> cluster = Cluster::in_process(3, hosting<Rank>());
  parallel::ActorMesh<Rank> model = parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"tp", 3}}));
};

}  // namespace

TEST_CASE("a pass by some parts of a call whose steps wait for each other is refused before anything runs") {
  World world;
  autograd::Context step(*world.cluster);
  const Tensors ys = world.call<&Rank::meets>();
  for (const Tensor& loss : {ys[0] * 1, ys[0] + ys[1], ys[2] * ys[1]})
    for (const bool grad : {false, true}) {
      const Error e = error_of([&] { grad ? (void)step.grad({loss}, {ys[1]}) : step.backward(loss); });
      CHECK(e.kind() == ErrorKind::invalid);
      CHECK_THAT(e.what(), Contains("the loss comes by what ") && Contains("Rank::meets on w") &&
                               Contains("parallel::same_on_all(results)"));
    }
  world.check_gradients(0);
  step.backward(parallel::same_on_all(ys));
  world.check_gradients(9.0);
  // One whose part counts for nothing takes part.
  autograd::Context other(*world.cluster);
  other.backward(parallel::weighted_mean(world.call<&Rank::meets>(), {1, 1, 0}));
  world.check_gradients(3.0);
}

TEST_CASE("parts that a pass comes by elsewhere, or that wait for nobody, may be left out") {
  World world;
  autograd::Context step(*world.cluster);
  const Tensors ys = world.call<&Rank::meets>(), plain = world.call<&Rank::plain>();
  // One part by another actor, whose result is in the loss; and another call is in it with one part alone.
  const Tensor further = world.model.actors()[1].call<&Rank::doubled>(ys[2]).get();
  step.backward(ys[0] + ys[1] + further * 0.5 + plain[1] * 0);
  for (const size_t r : {0, 2})
    CHECK(world.model.actors()[r].call<&Rank::gradient>().get().equal(full({2}, 9.0, float64)));
}

TEST_CASE("what a pass waits for too long is said: step, actor, operation, and who has not called it") {
  World world;
  autograd::Context step(*world.cluster);
  Tensors ys;
  for (const auto& actor : world.model.actors())  // one by one
    ys.push_back(actor.call<&Rank::meets>(full({2}, 3.0, float64)).get());
  const Error e = error_of([&] { step.backward(ys[0] + ys[1], {}, {.timeout = 200ms}); });
  CHECK(e.kind() == ErrorKind::deadline);
  CHECK_THAT(e.what(), Contains("it waited for: w0 (which waits for the gradients of Meet in ") &&
                           Contains("Rank#0:1 on w0; [all_reduce] use 0 without a tag, to which parts are "
                                    "missing from rank 2 ("));
}
