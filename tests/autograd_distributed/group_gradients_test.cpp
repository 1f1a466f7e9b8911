// Gradients through operations of groups are those of one process, whichever ranks a loss depends on.
#include "autograd/distributed/group_gradients.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <thread>

#include "core/base/even_sizes.h"
#include "parallel/mesh/weighted_mean.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

const std::vector<std::string> kOperations{"all_reduce", "mean",   "reduce",         "broadcast",
                                           "all_gather", "gather", "reduce_scatter", "scatter",
                                           "all_to_all", "lists",  "rows",           "send"};

Tensor random(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return ops::randn(shape, generator).to(float64);
}

// How many rows rank `from` sends rank `to`; some send nothing.
int64_t rows_between(size_t from, size_t to) { return static_cast<int64_t>((from + 2 * to) % 3); }

Shape shape_of(const std::string& what, size_t rank, size_t n) {
  if (what == "all_gather" || what == "gather") return {static_cast<int64_t>((2 * rank) % 3), 2};
  if (what == "rows") return {static_cast<int64_t>(1 + rank), 2};
  if (what == "reduce_scatter" || what == "scatter") return {5, 2};
  if (what != "all_to_all") return {3, 2};
  int64_t rows = 0;
  for (size_t to = 0; to < n; ++to) rows += rows_between(rank, to);
  return {rows, 2};
}

Tensors pieces(const Tensor& x, const std::vector<int64_t>& rows) {
  Tensors all;
  int64_t from = 0;
  for (const int64_t r : rows) all.push_back(ops::slice(x, 0, from, from + r)), from += r;
  return all;
}

Tensors to_all(const Tensor& x, size_t rank, size_t n) {
  std::vector<int64_t> rows;
  for (size_t to = 0; to < n; ++to) rows.push_back(rows_between(rank, to));
  return pieces(x, rows);
}

// What a rank makes of its tensor before, and of its results behind.
Tensor before(const Tensor& x) { return ops::mul(x, ops::cos(x)); }
Tensor behind(const Tensors& results, size_t rank) {
  Tensor sum;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    const Tensor one = ops::sum(ops::sin(results[i])) * (1.0 + double(rank) + 0.5 * double(i));
    sum = sum.defined() ? sum + one : one;
  }
  return sum;
}

Tensor total(const Tensors& all) {
  Tensor sum = all[0];
  for (size_t i = 1; i < all.size(); ++i) sum = sum + all[i];
  return sum;
}

// The results of all ranks.
std::vector<Tensors> in_one_process(const std::string& what, const Tensors& xs, size_t root) {
  const size_t n = xs.size();
  std::vector<Tensors> all(n);
  for (size_t r = 0; r < n; ++r) {
    const auto even = internal::even_sizes(5, n);
    if (what == "all_reduce" || (what == "reduce" && r == root)) all[r] = {total(xs)};
    if (what == "lists") all[r] = {total(xs), total(xs) * 2.0};
    if (what == "mean") all[r] = {total(xs) * (1.0 / double(n))};
    if (what == "broadcast") all[r] = {xs[root]};
    if (what == "all_gather" || what == "rows" || (what == "gather" && r == root)) all[r] = {ops::cat(xs, 0)};
    if (what == "reduce_scatter") all[r] = {pieces(total(xs), even)[r]};
    if (what == "scatter") all[r] = {pieces(xs[root], even)[r]};
    if (what == "all_to_all")
      for (size_t from = 0; from < n; ++from) all[r].push_back(to_all(xs[from], from, n)[r]);
    if (what == "send" && n > 1) all[r] = {xs[(r + n - 1) % n]};
  }
  return all;
}

struct GroupRank : Actor {
  explicit GroupRank(bool needs) : needs(needs) {}
  void start(Tensor leaf) { x = needs ? leaf.clone_data().requires_grad_() : leaf; }
  Task<Tensors> results(Group group, std::string what, Tensor y, int64_t r) {
    const size_t n = group.size(), me = group.rank(), root = static_cast<size_t>(r);
    if (what == "all_to_all") co_return co_await group.all_to_all(to_all(y, me, n));
    if (what == "lists") co_return co_await group.all_reduce(Tensors{y, y * 2.0});
    if (what == "send") {
      if (n == 1) co_return Tensors{};
      const auto sent = group.send(y, (me + 1) % n);
      Tensor came = co_await group.receive((me + n - 1) % n);
      co_await sent;
      co_return Tensors{came};
    }
    CollectiveOptions options;
    Future<Tensor> one;
    if (what == "mean") options.op = ReduceOp::mean;
    if (what == "rows")
      for (size_t k = 0; k < n; ++k) options.rows.push_back(static_cast<int64_t>(1 + k));
    if (what == "all_reduce" || what == "mean") one = group.all_reduce(y, options);
    if (what == "reduce") one = group.reduce(y, root);
    if (what == "broadcast") one = group.broadcast(y, root);
    if (what == "all_gather" || what == "rows") one = group.all_gather(y, options);
    if (what == "gather") one = group.gather(y, root);
    if (what == "reduce_scatter") one = group.reduce_scatter(y);
    if (what == "scatter") one = group.scatter(me == root ? y : Tensor(), root);
    Tensor result = co_await one;
    co_return Tensors{result};
  }
  Task<Tensor> run(Group group, std::string what, int64_t root) {
    const Tensors all = co_await results(group, what, before(x), root);
    const Tensor loss = behind(all, group.rank());
    co_return loss.defined() ? loss : zeros({}, float64);
  }
  // A pass of the rank's own.
  Task<void> pass(Group group, std::string what, int64_t root) {
    const Tensors all = co_await results(group, what, before(x), root);
    const auto passing = autograd::context_backward(behind(all, group.rank()), {}, {.retain_graph = true});
    co_await passing;
  }
  // Two operations one behind the other, between which the rank computes.
  Task<Tensor> chain(Group group, std::string first, std::string second, int64_t root) {
    const Tensors all = co_await results(group, first, before(x), root);
    const Tensor y = before(x) * (1.0 + ops::tanh(all[0]).sum());
    const Tensors more = co_await results(group, second, y, root);
    const Tensor loss = behind(more, group.rank());
    co_return loss.defined() ? loss : zeros({}, float64);
  }
  // Two that are under way at once, called in an order of the rank's own.
  Task<Tensor> crossed(Group group) {
    const bool a_first = group.rank() % 2 == 0;
    Future<Tensor> a, b;
    if (a_first) a = group.all_reduce(before(x), {.tag = "a"});
    b = group.all_reduce(before(x) * 3.0, {.tag = "b"});
    if (!a_first) {
      const Tensor came = co_await b;
      a = group.all_reduce(before(x) * came, {.tag = "a"});
    }
    const Tensor u = co_await a, v = co_await b;
    co_return behind({u, v}, group.rank());
  }
  Task<Tensor> without(Group group, bool recorded) {
    const GradMode mode(recorded);
    const auto adding = group.all_reduce(x);
    const Tensor y = co_await adding;
    co_return ops::sum(y);
  }
  Task<Tensor> looked_at(Group group) {
    const auto adding = group.all_reduce(x, {.gradients = false});
    co_return co_await adding;
  }
  Task<std::string> largest(Group group) {
    try {
      const auto finding = group.all_reduce(x, {.op = ReduceOp::max});
      (void)co_await finding;
    } catch (const Error& e) {
      co_return std::string(e.what());
    }
    co_return "";
  }
  Tensor again() {
    const Tensor g = autograd::take_context_gradient(x);
    return g.defined() ? ops::sum(ops::mul(g, ops::sin(g))) : zeros({}, float64);
  }
  Tensor gradient() { return needs ? autograd::context_gradient(x) : Tensor(); }
  Tensor x;
  const bool needs;
  static constexpr auto remote =
      methods<&GroupRank::start, &GroupRank::run, &GroupRank::pass, &GroupRank::chain, &GroupRank::crossed,
              &GroupRank::without, &GroupRank::looked_at, &GroupRank::largest, &GroupRank::again,
              &GroupRank::gradient>;
};

struct World {
  // Two of the ranks live on one worker. Rank `constant` needs no gradients.
  explicit World(size_t n, size_t constant = 99) : cluster(Cluster::in_process(4, hosting<GroupRank>())) {
    for (size_t r = 0; r < n; ++r)
      ranks.push_back(cluster->spawn<GroupRank>(static_cast<int>(1 + r % 3), r != constant));
    group = Group(ranks, "ranks");
  }
  ~World() {
    ranks.clear();
    testing::nothing_left(*cluster);
    for (const auto& name : cluster->workers())
      for (const char* what : {"collectives", "early_collectives", "group_mail"})
        while (cluster->metrics(name)[what] != 0) std::this_thread::yield();
  }
  template <auto M, class... A>
  auto call(const A&... args) {
    std::vector<decltype(ranks[0].template call<M>(args...))> calls;
    for (const auto& r : ranks) calls.push_back(r.template call<M>(args...));
    return all(calls).get();
  }
  Tensors start(const std::string& what, uint64_t seed) {
    Tensors leaves;
    for (size_t r = 0; r < ranks.size(); ++r) {
      leaves.push_back(random(shape_of(what, r, ranks.size()), seed + r).requires_grad_());
      ranks[r].call<&GroupRank::start>(leaves[r].detach()).get();
    }
    return leaves;
  }
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<GroupRank>> ranks;
  Group group;
};

// Of the ranks that are used: bit r says that of rank r.
Tensor used(const Tensors& losses, unsigned mask) {
  Tensor sum;
  for (size_t r = 0; r < losses.size(); ++r)
    if (mask >> r & 1) sum = sum.defined() ? sum + losses[r] : losses[r];
  return sum;
}

Tensor alone(const std::string& what, const Tensors& leaves, size_t root, unsigned mask) {
  Tensors brought, losses;
  for (const Tensor& x : leaves) brought.push_back(before(x));
  const auto results = in_one_process(what, brought, root);
  for (size_t r = 0; r < results.size(); ++r) {
    losses.push_back(behind(results[r], r));
    if (!losses.back().defined()) losses.back() = zeros({}, float64);
  }
  return used(losses, mask);
}

// Undefined is zero.
void check_same(const Tensor& got, const Tensor& expected) {
  if (!got.defined())
    CHECK((!expected.defined() || ops::abs(expected).sum().item() == 0));
  else
    CHECK(difference(got.detach(), expected.defined() ? expected.detach() : zeros_like(got), 1e-10, 1e-10) ==
          "");
}

Tensors gradients_of(const Tensor& loss, const Tensors& leaves, bool recorded) {
  if (!loss.requires_grad()) return Tensors(leaves.size());
  return autograd::grad({loss}, leaves, {}, {.create_graph = recorded});
}

}  // namespace

TEST_CASE("gradients through each operation of a group, on 1 to 4 ranks, of every choice of results") {
  for (size_t n = 1; n <= 4; ++n) {
    World world(n);
    for (const std::string& what : kOperations)
      for (unsigned mask = 1; mask < 1u << n; ++mask) {
        const size_t root = mask % n;
        CAPTURE(n, what, mask, root);
        const Tensors leaves = world.start(what, 10 * mask);
        const Tensor expected = alone(what, leaves, root, mask);
        const Tensors g = gradients_of(expected, leaves, true);

        autograd::Context context(*world.cluster);
        const Tensor loss =
            used(world.call<&GroupRank::run>(world.group, what, static_cast<int64_t>(root)), mask);
        CHECK(difference(loss.detach(), expected.detach(), 1e-12, 1e-12) == "");
        if (!loss.requires_grad()) {
          for (const Tensor& one : g) check_same(Tensor(), one);
          continue;
        }
        context.backward(loss, {}, {.retain_graph = true});
        auto got = world.call<&GroupRank::gradient>();
        for (size_t r = 0; r < n; ++r) check_same(got[r], g[r]);
        context.backward(loss);  // adds the same
        got = world.call<&GroupRank::gradient>();
        for (size_t r = 0; r < n; ++r) check_same(got[r], g[r].defined() ? g[r] * 2.0 : g[r]);
      }
  }
}

TEST_CASE("gradients through operations of groups are slopes of what the ranks compute") {
  constexpr double kStep = 1e-5;
  for (size_t n = 1; n <= 4; ++n) {
    World world(n);
    for (const std::string& what : kOperations)
      for (const unsigned mask : {(1u << n) - 1, 1u << (n - 1), 1u}) {
        const auto root = static_cast<int64_t>(mask % n);
        CAPTURE(n, what, mask, root);
        const Tensors leaves = world.start(what, 40 + mask);
        Tensors ways;
        for (size_t r = 0; r < n; ++r) ways.push_back(random(leaves[r].shape(), 90 + r));
        const auto value_at = [&](double step) {  // of the losses that are used
          for (size_t r = 0; r < n; ++r)
            world.ranks[r].call<&GroupRank::start>(leaves[r].detach() + ways[r] * step).get();
          autograd::Context context(*world.cluster);
          return used(world.call<&GroupRank::run>(world.group, what, root), mask).item();
        };
        const double slope = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
        (void)value_at(0);
        autograd::Context context(*world.cluster);
        const Tensor loss = used(world.call<&GroupRank::run>(world.group, what, root), mask);
        double got = 0;
        if (loss.requires_grad()) {
          context.backward(loss);
          const auto gradients = world.call<&GroupRank::gradient>();
          for (size_t r = 0; r < n; ++r)
            if (gradients[r].defined()) got += ops::sum(gradients[r].detach() * ways[r]).item();
        }
        INFO("slope " << slope << ", by gradients " << got);
        CHECK(std::abs(got - slope) <= 1e-7 * std::max(1.0, std::abs(slope)));
      }
  }
}

TEST_CASE("second derivatives through operations of groups") {
  for (size_t n = 1; n <= 4; ++n) {
    World world(n);
    for (const std::string& what : kOperations) {
      const unsigned mask = n > 2 ? 5 : (1u << n) - 1;
      CAPTURE(n, what);
      const Tensors leaves = world.start(what, 7);
      const Tensor expected = alone(what, leaves, 0, mask);
      if (!expected.requires_grad()) continue;
      Tensor squares;
      for (const Tensor& g : gradients_of(expected, leaves, true)) {
        if (!g.defined()) continue;
        const Tensor one = ops::sum(ops::mul(g, ops::sin(g)));
        squares = squares.defined() ? squares + one : one;
      }
      const Tensors second = gradients_of(squares, leaves, false);

      autograd::Context context(*world.cluster);
      const Tensor loss = used(world.call<&GroupRank::run>(world.group, what, int64_t{0}), mask);
      context.backward(loss, {}, {.create_graph = true});
      context.backward(used(world.call<&GroupRank::again>(), ~0u));
      const auto got = world.call<&GroupRank::gradient>();
      for (size_t r = 0; r < n; ++r) check_same(got[r], second[r]);
    }
  }
}

TEST_CASE("operations of groups follow each other, and some ranks need no gradients") {
  const std::vector<std::string> shaped{"all_reduce", "broadcast", "mean", "send"};
  for (const size_t constant : {size_t{99}, size_t{1}}) {
    World world(3, constant);
    for (const std::string& first : shaped)
      for (const std::string& second : {"all_reduce", "reduce", "gather", "all_gather", "lists"}) {
        CAPTURE(constant, first, second);
        const Tensors leaves = world.start("all_reduce", 3);
        Tensors brought, next, losses;
        for (const Tensor& x : leaves) brought.push_back(before(x));
        const auto between = in_one_process(first, brought, 2);
        for (size_t r = 0; r < 3; ++r) next.push_back(brought[r] * (1.0 + ops::tanh(between[r][0]).sum()));
        const auto results = in_one_process(second, next, 2);
        for (size_t r = 0; r < 3; ++r) {
          losses.push_back(behind(results[r], r));
          if (!losses.back().defined()) losses.back() = zeros({}, float64);
        }
        const Tensors g = gradients_of(used(losses, 6), leaves, false);
        autograd::Context context(*world.cluster);
        context.backward(used(world.call<&GroupRank::chain>(world.group, first, second, int64_t{2}), 6));
        const auto got = world.call<&GroupRank::gradient>();
        for (size_t r = 0; r < 3; ++r)
          if (r != constant) check_same(got[r], g[r]);
      }
  }
}

TEST_CASE("gradients of operations that ranks call in different orders") {
  World world(3);
  const Tensors x = world.start("all_reduce", 5);
  Tensors y;
  for (const Tensor& one : x) y.push_back(before(one));
  const Tensor b = (y[0] + y[1] + y[2]) * 3.0, a = y[0] + y[1] * b + y[2];
  Tensors losses;
  for (size_t r = 0; r < 3; ++r) losses.push_back(behind({a, b}, r));
  const Tensors g = gradients_of(used(losses, 3), x, false);
  autograd::Context context(*world.cluster);
  context.backward(used(world.call<&GroupRank::crossed>(world.group), 3));
  const auto got = world.call<&GroupRank::gradient>();
  for (size_t r = 0; r < 3; ++r) check_same(got[r], g[r]);
}

TEST_CASE("ranks that begin passes of their own add up the gradients of all losses") {
  World world(3);
  for (const char* what : {"all_reduce", "all_to_all", "send", "broadcast"}) {
    CAPTURE(what);
    const Tensors leaves = world.start(what, 11);
    const Tensors g = gradients_of(alone(what, leaves, 1, 7), leaves, false);
    autograd::Context context(*world.cluster);
    std::vector<Future<void>> passes;
    for (const auto& r : world.ranks)
      passes.push_back(r.call<&GroupRank::pass>(world.group, std::string(what), int64_t{1}));
    for (const auto& p : passes) p.get();
    const auto got = world.call<&GroupRank::gradient>();
    for (size_t r = 0; r < 3; ++r) check_same(got[r], g[r]);
  }
}

TEST_CASE("gradients that cannot go through a group are refused in words") {
  World world(3);
  (void)world.start("all_reduce", 5);
  std::vector<Future<Tensor>> calls;
  for (const auto& r : world.ranks) calls.push_back(r.call<&GroupRank::run>(world.group, "all_reduce", 0));
  for (const auto& c : calls)
    CHECK_THAT(error_of([&] { c.get(); }).what(),
               Contains("[all_reduce] a tensor needs gradients, but no autograd::Context is active"));
  {
    autograd::Context context(*world.cluster);
    for (const std::string& text : world.call<&GroupRank::largest>(world.group))
      CHECK_THAT(text, Contains("no gradient goes through ReduceOp::max"));
  }
  {
    autograd::Context context(*world.cluster);
    std::vector<Future<Tensor>> some;
    for (size_t r = 0; r < 3; ++r)
      some.push_back(world.ranks[r].call<&GroupRank::without>(world.group, r != 1));
    const Tensors losses = all(some).get();
    CHECK_FALSE(losses[1].requires_grad());
    CHECK_THAT(error_of([&] { context.backward(losses[0]); }).what(),
               Contains("has not recorded its part of an operation of a group") && Contains("NoGradGuard"));
  }
  {
    autograd::Context context(*world.cluster);
    for (const Tensor& y : world.call<&GroupRank::looked_at>(world.group)) CHECK_FALSE(y.requires_grad());
    const Tensor loss = used(world.call<&GroupRank::run>(world.group, "all_reduce", int64_t{0}), 7);
    context.backward(loss);
    for (const Tensor& g : world.call<&GroupRank::gradient>()) CHECK(g.defined());
  }
}
