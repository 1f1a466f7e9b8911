// Conversions between ranks: values, gradients and second derivatives are those of one process, in any order.
#include "parallel/tensor/convert.h"

#include <catch2/catch.hpp>

#include <array>
#include <cmath>

#include "parallel/mesh/weighted_mean.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;

namespace {

Tensor random(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return ops::randn(shape, generator).to(float64);
}

std::vector<int64_t> uneven(int64_t n, size_t ranks, uint64_t seed) {
  Generator generator(seed);
  std::vector<int64_t> sizes(ranks, 0);
  for (int64_t i = 0; i < n; ++i) ++sizes[generator.below(ranks)];
  return sizes;
}

Tensor piece(const Tensor& x, int64_t dim, const std::vector<int64_t>& sizes, size_t rank) {
  int64_t from = 0;
  for (size_t r = 0; r < rank; ++r) from += sizes[r];
  return ops::slice(x, dim, from, from + sizes[rank]);
}

// What a tensor is on the ranks; of own ones each rank has another, of the whole shape.
enum class Is { whole, repeated, cut0, cut1, own };

const Shape kShape{5, 7};

// One step of a random program: the same on all ranks.
struct Step {
  int what;
  size_t a, b;
  uint64_t seed;
};

// How values are computed with on a rank: n is the number of ranks, sizes those of the two dimensions.
struct Layout {
  size_t ranks;
  std::vector<int64_t> sizes[2];
};

Layout layout_of(size_t ranks, uint64_t seed) {
  return {ranks, {uneven(kShape[0], ranks, seed), uneven(kShape[1], ranks, seed + 1)}};
}

Tensor constant(uint64_t seed, size_t rank) { return random(kShape, seed * 16 + rank + 1); }

// That of what a cut tensor meets: the part of a whole one.
Tensor constant_like(Is is, uint64_t seed, size_t rank, const Layout& at) {
  switch (is) {
    case Is::whole:
      return constant(seed, 0);
    case Is::cut0:
      return piece(constant(seed, 0), 0, at.sizes[0], rank);
    case Is::cut1:
      return piece(constant(seed, 0), 1, at.sizes[1], rank);
    default:
      return constant(seed, rank + 1);
  }
}

// Of one process: whole tensors, or one for each rank.
using Global = std::pair<Is, Tensors>;

Tensor local(const Tensor& x, const Tensor& c, uint64_t seed) {
  return seed % 2 ? ops::sin(ops::mul(x, c)) : ops::tanh(ops::add(x, c));
}

// What a program makes of its values, one after the other; the last is a whole one of no dimensions.
class Program {
 public:
  Program(uint64_t seed, size_t ranks) : ranks_(ranks) {
    Generator generator(seed);
    for (int i = 0; i < 14; ++i)
      steps_.push_back({static_cast<int>(generator.below(4)), generator.next(), generator.next(),
                        generator.next() % 1000});
    layout_ = layout_of(ranks, seed + 100);
  }
  const Layout& layout() const { return layout_; }

  // On a rank, whose leaf is `x`, which is whole.
  Task<Tensor> run(Tensor x, Group group, size_t rank) const {
    std::vector<std::pair<Is, Tensor>> all{{Is::whole, x}};
    for (const Step& s : steps_) {
      const auto [is, a] = all[s.a % all.size()];
      if (s.what < 2) {  // something of its own kind; of a repeated one, what the rank makes of it
        const Is result = is == Is::repeated ? Is::own : is;
        all.emplace_back(result, local(a, constant_like(is, s.seed, rank, layout_), s.seed));
      } else if (const auto [other, b] = all[s.b % all.size()]; s.what == 2 && other == is) {
        all.emplace_back(is, ops::mul(a, b));
      } else {
        all.push_back(co_await convert(is, a, group, s.seed));
      }
    }
    Tensor sum;
    for (size_t i = 0; i < all.size(); ++i) {
      const Tensor one =
          co_await summed(all[i].first, ops::sum(ops::mul(all[i].second, 0.5 + double(i))), group);
      sum = sum.defined() ? ops::add(sum, one) : one;
    }
    co_return sum;
  }

  Tensor in_one_process(const Tensor& x) const {
    std::vector<Global> all{{Is::whole, {x}}};
    for (const Step& s : steps_) {
      const auto [is, a] = all[s.a % all.size()];
      if (s.what < 2) {
        Global made{is == Is::repeated ? Is::own : is, {}};
        if (made.first == Is::own)
          for (size_t r = 0; r < ranks_; ++r)
            made.second.push_back(local(a[is == Is::own ? r : 0], constant(s.seed, r + 1), s.seed));
        else
          made.second = {local(a[0], constant(s.seed, 0), s.seed)};
        all.push_back(made);
      } else if (const auto [other, b] = all[s.b % all.size()]; s.what == 2 && other == is) {
        Global made{is, {}};
        for (size_t i = 0; i < a.size(); ++i) made.second.push_back(ops::mul(a[i], b[i]));
        all.push_back(made);
      } else {
        Global made{target(is, s.seed), a};
        if (is == Is::own) made.second = {total(a)};
        all.push_back(made);
      }
    }
    Tensor sum;
    for (size_t i = 0; i < all.size(); ++i) {
      // What all ranks have each of them adds once.
      const double times = all[i].first == Is::repeated ? double(ranks_) : 1;
      const Tensor one = ops::sum(ops::mul(total(all[i].second), times * (0.5 + double(i))));
      sum = sum.defined() ? ops::add(sum, one) : one;
    }
    return sum;
  }

 private:
  static Tensor total(const Tensors& all) {
    Tensor sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) sum = ops::add(sum, all[i]);
    return sum;
  }
  // What a value of that kind can be made.
  static Is target(Is is, uint64_t seed) {
    switch (is) {
      case Is::whole:
        return std::array{Is::repeated, Is::cut0, Is::cut1}[seed % 3];
      case Is::cut0:
        return std::array{Is::repeated, Is::whole, Is::cut1}[seed % 3];
      case Is::cut1:
        return std::array{Is::repeated, Is::whole, Is::cut0}[seed % 3];
      case Is::own:
        return std::array{Is::whole, Is::cut0, Is::cut1}[seed % 3];
      case Is::repeated:
        return Is::repeated;
    }
    return is;
  }
  Task<std::pair<Is, Tensor>> convert(Is is, Tensor a, Group group, uint64_t seed) const {
    const Is to = target(is, seed);
    const int64_t from_dim = is == Is::cut1, to_dim = to == Is::cut1;
    const auto& from_sizes = layout_.sizes[from_dim];
    const auto& to_sizes = layout_.sizes[to_dim];
    const std::vector<int64_t> told = seed % 2 ? from_sizes : std::vector<int64_t>();  // or asked for
    Future<Tensor> y = Future<Tensor>::ready(a);
    if (is == Is::whole)
      y = Future<Tensor>::ready(to == Is::repeated ? tp::enter(a, group)
                                                   : tp::cut(a, group, to_dim, to_sizes));
    else if (is == Is::own)
      y = to == Is::whole ? tp::sum(a, group) : tp::sum_scatter(a, group, to_dim, to_sizes);
    else if (is != Is::repeated)
      y = to == Is::repeated ? tp::gather(a, group, from_dim, told)
          : to == Is::whole  ? tp::join(a, group, from_dim - 2, told)
                             : tp::exchange(a, group, from_dim, to_dim, told, to_sizes);
    Tensor made = co_await y;
    co_return std::pair(to, made);
  }
  static Future<Tensor> summed(Is is, Tensor x, Group group) {
    return is == Is::whole ? Future<Tensor>::ready(x) : tp::sum(x, group);
  }

  size_t ranks_;
  std::vector<Step> steps_;
  Layout layout_;
};

struct Rank : Actor {
  explicit Rank(Tensor start) : x(start.clone_data().requires_grad_()) {}
  Task<Tensor> run(Group group, int64_t seed) {
    const Program program(static_cast<uint64_t>(seed), group.size());
    co_return co_await program.run(x, group, group.rank());
  }
  // What a recorded pass has brought, as something to differentiate again.
  Tensor again() {
    const Tensor g = autograd::take_context_gradient(x);
    return ops::sum(ops::mul(g, ops::sin(g)));
  }
  Tensor gradient() { return autograd::context_gradient(x); }

  // For what fails, and for what no gradient comes to.
  Task<Tensor> fails_back(Group group, int64_t who) {
    const Tensor own = ops::mul(tp::enter(x, group), 2);
    const Tensor through = static_cast<int64_t>(group.rank()) == who ? Fails::apply(own) : own;
    co_return co_await tp::sum(ops::sum(through), group);
  }
  Task<Tensors> two(Group group) {
    Tensor used = ops::sum(ops::mul(x, 3));
    Tensor unused = co_await tp::sum(ops::sum(ops::sin(tp::enter(x, group))), group);
    co_return Tensors{used, unused};
  }
  // The gradient of one rank does not come to its conversion.
  Task<Tensor> some(Group group) {
    Tensor own = tp::enter(x, group);
    if (group.rank() == 0) own = Stops::apply(own);
    co_return co_await tp::sum(ops::sum(own), group);
  }
  struct Fails : autograd::Function<Fails> {
    static Tensor forward(Ctx&, Tensor t) { return t * 1; }
    static Tensors backward(Ctx&, Tensors) { throw_error(ErrorKind::failed, "[rank] out of luck"); }
  };
  struct Stops : autograd::Function<Stops> {
    static Tensor forward(Ctx&, Tensor t) { return t * 1; }
    static Tensors backward(Ctx&, Tensors) { return {Tensor()}; }
  };
  Task<Tensor> plain(Group group, Tensor y) { co_return co_await tp::sum(y, group); }
  Tensor x;
  static constexpr auto remote = methods<&Rank::run, &Rank::again, &Rank::gradient, &Rank::fails_back,
                                         &Rank::two, &Rank::some, &Rank::plain>;
};

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
  const Tensor start = random(kShape, 7);
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
  autograd::Context context(*world.cluster);
  const Error e =
      error_of([&] { world.ranks[0].with_timeout(200ms).call<&Rank::run>(world.group, 1).get(); });
  CHECK(e.kind() == ErrorKind::deadline);
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
