// Conversions between ranks: values, gradients and second derivatives are those of one process, in any order.
#include "parallel/tensor/convert.h"

#include <catch2/catch.hpp>

#include <cmath>

#include "parallel/mesh/weighted_mean.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "tests/tensor_parallel/rank_programs.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;

namespace {

using Rank = testing::ProgramRank;
using testing::kShape;
using testing::Program;

struct World {
  explicit World(int n) : cluster(Cluster::in_process(n + 1, hosting<Rank>())) {
    for (int r = 0; r < n; ++r) ranks.push_back(cluster->spawn<Rank>(r + 1, start));
    group = Group(ranks, "ranks");
  }
  ~World() {
    ranks.clear();
    nothing_left(*cluster);
    for (const auto& name : cluster->workers())
      for (const char* what : {"collectives", "early_collectives"})
        while (cluster->metrics(name)[what] != 0) std::this_thread::yield();
  }
  template <auto M, class... A>
  auto call(const A&... args) {
    using F = decltype(ranks[0].call<M>(group, args...));
    std::vector<F> all;
    for (const auto& r : ranks) all.push_back(r.template call<M>(group, args...));
    return all;
  }
  Tensors gradients() {
    std::vector<Future<Tensor>> all;
    for (const auto& r : ranks) all.push_back(r.call<&Rank::gradient>());
    return troupe::all(all).get();
  }
  const Tensor start = testing::random(kShape, 7);
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<Rank>> ranks;
  Group group;
};

// Empty if they are nearly equal.
std::string far(const Tensor& a, const Tensor& b) { return difference(a.detach(), b.detach(), 1e-9, 1e-9); }

}  // namespace

TEST_CASE("random programs of conversions give what one process gives, forward, backward and twice") {
  for (int n = 1; n <= 4; ++n) {
    World world(n);
    for (int64_t seed = 1; seed <= 12; ++seed) {
      CAPTURE(n, seed);
      const Tensor x = world.start.clone_data().requires_grad_();
      const Tensor expected = Program(static_cast<uint64_t>(seed), static_cast<size_t>(n)).in_one_process(x);
      const Tensor g = autograd::grad({expected}, {x}, {}, {.create_graph = true})[0];
      const Tensor second = autograd::grad({ops::sum(ops::mul(g, ops::sin(g)))}, {x})[0];

      autograd::Context context(*world.cluster);
      const Tensor loss = parallel::same_on_all(all(world.call<&Rank::run>(seed)).get());
      CHECK(far(loss, expected) == "");
      context.backward(loss, {}, {.retain_graph = true});
      for (const Tensor& t : world.gradients()) CHECK(far(t, g) == "");
      context.backward(loss, {}, {.retain_graph = true});  // adds the same
      for (const Tensor& t : world.gradients()) CHECK(far(t, g * 2) == "");
      if (n > 1 && seed > 6) continue;
      autograd::Context recorded(*world.cluster);
      const Tensor again = parallel::same_on_all(all(world.call<&Rank::run>(seed)).get());
      recorded.backward(again, {}, {.create_graph = true});
      std::vector<Future<Tensor>> squares;
      for (const auto& r : world.ranks) squares.push_back(r.call<&Rank::again>());
      // The order in which gradients arrive, and so their last bits, may differ.
      recorded.backward(parallel::weighted_mean(all(squares).get()) * double(n));
      for (const Tensor& t : world.gradients()) CHECK(far(t, second) == "");
    }
  }
}

TEST_CASE("calls and passes of ranks run in different orders, and conversions find their own") {
  World world(3);
  autograd::Context context(*world.cluster);
  std::vector<Tensor> losses;
  std::vector<std::vector<Future<Tensor>>> calls;
  for (int64_t seed = 1; seed <= 10; ++seed) calls.push_back(world.call<&Rank::run>(seed));
  Tensor expected;
  const Tensor x = world.start.clone_data().requires_grad_();
  std::vector<Future<void>> passes;
  for (int64_t seed = 1; seed <= 10; ++seed) {
    const Tensor alone = Program(static_cast<uint64_t>(seed), 3).in_one_process(x);
    const Tensor loss = parallel::same_on_all(all(calls[static_cast<size_t>(seed - 1)]).get());
    CHECK(far(loss, alone) == "");
    expected = expected.defined() ? expected + alone : alone;
    for (int i = 0; i < 2; ++i) passes.push_back(context.backward_async(loss, {}, {.retain_graph = true}));
  }
  for (const auto& pass : passes) pass.get();
  const Tensor g = autograd::grad({expected}, {x})[0];
  for (const Tensor& t : world.gradients()) CHECK(far(t, g * 2) == "");
}

TEST_CASE("one pass over several results, of which some are not used") {
  World world(2);
  {
    autograd::Context context(*world.cluster);
    Tensors used;
    for (const auto& two : all(world.call<&Rank::two>()).get()) used.push_back(two[0]);
    context.backward(parallel::same_on_all(used));
    for (const Tensor& t : world.gradients()) CHECK(far(t, full(kShape, 3.0, float64)) == "");
  }
  autograd::Context context(*world.cluster);
  context.backward(parallel::same_on_all(all(world.call<&Rank::some>()).get()));
  for (const Tensor& t : world.gradients())
    CHECK(far(t, full(kShape, 1.0, float64)) == "");  // of rank 1 alone
}

TEST_CASE("a rank that fails in a pass fails it, and the others do not wait for it") {
  World world(3);
  for (int64_t who = 0; who < 3; ++who) {
    autograd::Context context(*world.cluster);
    const Tensor loss = parallel::same_on_all(all(world.call<&Rank::fails_back>(who)).get());
    const Error e = error_of([&] { context.backward(loss, {}, {.retain_graph = true}); });
    CHECK_THAT(e.what(),
               Contains("[rank] out of luck") && Contains("backward on w" + std::to_string(who + 1)));
    for (const Tensor& t : world.gradients()) CHECK_FALSE(t.defined());
    const Tensor good = parallel::same_on_all(all(world.call<&Rank::run>(1)).get());
    context.backward(good);
    for (const Tensor& t : world.gradients()) CHECK(t.defined());
  }
}

TEST_CASE(
    "a rank that is not called is named when the time is up, and the end of a context ends its conversions") {
  World world(2);
  {
    autograd::Context context(*world.cluster);
    const Error e =
        error_of([&] { world.ranks[0].with_timeout(200ms).call<&Rank::run>(world.group, 1).get(); });
    CHECK(e.kind() == ErrorKind::deadline);
  }
  autograd::Context context(*world.cluster);
  // The driver's loss does not come by rank 1.
  const auto losses = all(world.call<&Rank::run>(2)).get();
  const Error back = error_of([&] { context.backward(losses[0], {}, {.timeout = 200ms}); });
  CHECK(back.kind() == ErrorKind::deadline);
  CHECK_THAT(back.what(), Contains("w1"));
}

TEST_CASE("without a context conversions work as well, for as many calls as there may be") {
  World world(2);
  for (int i = 0; i < 600; ++i) {
    const double a = i;
    std::vector<Future<Tensor>> sums = world.call<&Rank::plain>(tensor({a, 1.0}, float64));
    for (const Tensor& t : all(sums).get()) CHECK(t.to_vector<double>() == std::vector{2 * a, 2.0});
  }
  std::vector<std::vector<Future<Tensor>>> many;
  for (int i = 0; i < 100; ++i) many.push_back(world.call<&Rank::plain>(tensor({double(i)}, float64)));
  for (int i = 0; i < 100; ++i)
    for (const Tensor& t : all(many[static_cast<size_t>(i)]).get()) CHECK(t.item() == 2 * i);
}

TEST_CASE("what cannot be converted is refused before anything is sent") {
  World world(2);
  struct Case {
    std::function<void(const Group&)> use;
    const char* says;
  };
  const Tensor x = zeros({4, 3}, float64);
  const auto text = [&](const std::function<void(const Group&)>& use) {
    const Group workers(*world.cluster, {"w0", "w1"}, "driver");
    const CallFrameScope scope({.worker = &world.cluster->worker()});
    return testing::invalid_text([&] { use(workers); });
  };
  CHECK_THAT(text([](const Group& g) { tp::enter(Tensor(), g); }),
             Contains("[enter] the tensor is undefined"));
  CHECK_THAT(text([&](const Group& g) { (void)tp::gather(x, g, 2); }),
             Contains("[gather]") && Contains("no dimension 2"));
  CHECK_THAT(text([&](const Group& g) {
               (void)tp::cut(x, g, 0, {1, 2});
             }),
             Contains("[cut] sizes [1, 2] do not cut dimension 0"));
  CHECK_THAT(text([&](const Group& g) {
               (void)tp::join(x, g, 1, {2, 2});
             }),
             Contains("[join] rank 0 of 2 has 3 along dimension 1"));
  CHECK_THAT(text([&](const Group& g) { (void)tp::exchange(x, g, 1, -1); }),
             Contains("is cut along dimension 1 already"));
}

TEST_CASE("sizes are even, the first ones one more") {
  CHECK(tp::even_sizes(7, 3) == std::vector<int64_t>{3, 2, 2});
  CHECK(tp::even_sizes(2, 4) == std::vector<int64_t>{1, 1, 0, 0});
  CHECK(tp::even_sizes(0, 2) == std::vector<int64_t>{0, 0});
}

TEST_CASE("the mean of ranks' losses is weighted, and one without weight is reached all the same") {
  const Tensor a = tensor({2.0}, float64).requires_grad_(), b = tensor({5.0}, float64).requires_grad_();
  const Tensor nan = tensor({std::nan("")}, float64).requires_grad_();
  const Tensor mean = parallel::weighted_mean({a * 1, b * 1, nan * 1}, {1, 3, 0});
  CHECK(mean.item() == Approx((2 + 15) / 4.0));
  mean.backward();
  CHECK(a.grad().item() == 0.25);
  CHECK(b.grad().item() == 0.75);
  CHECK_FALSE(nan.grad().defined());
  CHECK(parallel::weighted_mean({a, b}).item() == 3.5);
  CHECK_THAT(testing::invalid_text([&] {
               parallel::weighted_mean({a, b}, {0, 0});
             }),
             Contains("all weights are 0"));
  CHECK_THAT(testing::invalid_text([&] { parallel::weighted_mean({a, b}, {1, -1}); }), Contains("weight -1"));
  CHECK_THAT(testing::invalid_text([&] {
               parallel::same_on_all({a, b});
             }),
             Contains("value 1 differs from value 0"));
}
