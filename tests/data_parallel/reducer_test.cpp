// Gradients that are summed over a group while the backward pass runs: those of one model on the whole batch.
#include <catch2/catch.hpp>

#include "tests/data_parallel/reducer_world.h"
#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::parallel;
using namespace troupe::testing;
using Catch::Contains;

TEST_CASE("gradients are those of one process on the whole batch, whatever the rows and the buckets") {
  for (const Cuts& cuts : std::vector<Cuts>{
           {0, 8}, {0, 4, 8}, {0, 1, 8}, {0, 0, 8}, {0, 2, 4, 6, 8}, {0, 1, 3, 8, 8}, {0, 0, 0, 5, 8}}) {
    CAPTURE(cuts);
    OneProcess whole;
    const double loss = whole.add(cuts, inputs(), targets());
    std::vector<Tensor> bits;
    for (const auto& [first, others] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {64, 100}, {1 << 20, 25 << 20}}) {
      World world(cuts.size() - 1, first, others);
      {
        const autograd::Context step(*world.cluster);
        for (const auto& r : world.pass(cuts, inputs(), targets()))
          CHECK(r.value() == Approx(loss).epsilon(1e-12));
        const auto got = world.gradients();
        close(got, whole.model);
        if (bits.empty()) bits = got;
        for (size_t i = 0; i < got.size(); ++i)
          if (got[i].defined()) CHECK(bit_equal(got[i], bits[i]));
      }
      world.at_rest();
    }
  }
}

TEST_CASE("passes of one context add up, those that accumulate, too") {
  const Cuts a{0, 3, 8}, b{0, 5, 8}, c{0, 1, 2};
  World world(2);
  OneProcess whole;
  {
    const autograd::Context step(*world.cluster);
    whole.add(a, inputs(), targets());
    for (const auto& r : world.pass(a, inputs(), targets())) REQUIRE(r.ok());
    close(world.gradients(), whole.model);
    for (const auto& r : world.pass(b, inputs(), targets(), true)) REQUIRE(r.ok());
    for (size_t r = 0; r < 2; ++r)  // nothing that differs between members is in their gradients
      close(world.gradients(), whole.model);
    whole.add(b, inputs(), targets(), false);
    const double loss = whole.add(c, inputs(), targets());
    for (const auto& r : world.pass(c, inputs(), targets())) CHECK(r.value() == Approx(loss).epsilon(1e-12));
    close(world.gradients(), whole.model);
    whole.add(a, inputs(), targets());  // nothing is left to be counted twice
    for (const auto& r : world.pass(a, inputs(), targets())) REQUIRE(r.ok());
    close(world.gradients(), whole.model);
  }
  world.at_rest();
}

TEST_CASE("what a reducer cannot do is refused, with what to write") {
  World world(2);
  const Group group(world.members);
  CHECK_THAT(error_of([&] { world.members[0].call<&Member::join>(group, 1, 1, "none").get(); }).what(),
             Contains("rank 0 of this group has a reducer \"gradients\" already"));
  CHECK_THAT(
      error_of([&] { world.members[0].call<&Member::backward>(inputs(), targets(), false).get(); }).what(),
      Contains("in an autograd::Context, and none is active here"));
  const autograd::Context step(*world.cluster);
  for (const auto& r : world.pass({0, 0, 0}, inputs(), targets())) {
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().what(), Contains("no member has a row"));
  }
}

TEST_CASE("buckets are in a given order, each of one dtype") {
  const Tensors p{ones({100}), ones({4}, float64), ones({10}), ones({300}), ones({2})};
  using Buckets = std::vector<std::vector<size_t>>;
  const std::vector<size_t> back{4, 3, 2, 1, 0};
  CHECK(buckets_of(p, back, {}) == Buckets{{4, 3, 2, 0}, {1}});
  CHECK(buckets_of(p, back, {.first = 8, .others = 440}) == Buckets{{4}, {3}, {2, 0}, {1}});
  CHECK(buckets_of(p, back, {.first = 1, .others = 1}) == Buckets{{4}, {3}, {2}, {1}, {0}});
  CHECK(buckets_of(p, {1, 0, 3, 2, 4}, {.first = 1, .others = 440}) == Buckets{{1}, {0}, {3}, {2, 4}});
  CHECK(buckets_of({}, {}, {}).empty());
  // No order gives more buckets than that.
  Generator random(5);
  for (const BucketSizes& sizes :
       std::vector<BucketSizes>{{}, {1, 1}, {8, 440}, {400, 1200}, {1 << 20, 16}}) {
    size_t most = 0;
    for (int i = 0; i < 200; ++i) {
      std::vector<size_t> order;
      for (const int64_t k : random.permutation(5)) order.push_back(static_cast<size_t>(k));
      most = std::max(most, buckets_of(p, order, sizes).size());
    }
    CHECK(most <= most_buckets(p, sizes));
  }
}

namespace {

struct Rows : Actor {  // a part that all members use, and nobody has a copy of
  Tensor rows(Tensor ids) { return ops::embedding(ids, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w = leaf(numbers({6, 3}, 1));
  static constexpr auto remote = methods<&Rows::rows, &Rows::gradient>;
};
struct Reader : Actor {
  void join(Group group) { reducer.emplace(group, model.all()); }
  Task<double> backward(RRef<Rows> table, Tensor ids, Tensor y) {
    Tensor loss;
    if (ids.size(0) > 0) {
      const Tensor x = co_await table.call<&Rows::rows>(ids);
      loss = model.loss(x, y, true);
    }
    const auto running = reducer->backward(loss, static_cast<double>(ids.size(0)));
    co_return co_await running;
  }
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (const Tensor& p : model.all()) all.push_back(autograd::context_gradient(p));
    return all;
  }
  Model model;
  std::optional<GradientReducer> reducer;
  static constexpr auto remote = methods<&Reader::join, &Reader::backward, &Reader::gradients>;
};

}  // namespace

TEST_CASE("a part that all members call has the gradient of the whole batch, as their own parameters have") {
  auto cluster = Cluster::in_process(4, hosting<Rows, Reader>());
  const auto table = cluster->spawn<Rows>("w3");
  const Tensor ids = tensor({0, 3, 3, 5, 1, 2, 5, 0});
  Model whole;
  const Tensor w = leaf(numbers({6, 3}, 1));
  autograd::backward(whole.loss(ops::embedding(ids, w), targets(), true));
  std::vector<RRef<Reader>> readers;
  for (size_t r = 0; r < 3; ++r) readers.push_back(cluster->spawn<Reader>(r));
  const Group group(readers);
  for (auto& r : readers) r.call<&Reader::join>(group).get();
  {
    const autograd::Context step(*cluster);
    const Cuts cuts{0, 3, 3, 8};
    std::vector<Future<double>> asked;
    for (size_t r = 0; r < 3; ++r)
      asked.push_back(readers[r].call<&Reader::backward>(table, ids.slice(0, cuts[r], cuts[r + 1]),
                                                         targets().slice(0, cuts[r], cuts[r + 1])));
    for (auto& a : asked) a.get();
    for (auto& r : readers) close(r.call<&Reader::gradients>().get(), whole);
    const auto got = table.call<&Rows::gradient>().get().to_vector<double>(),
               want = w.grad().to_vector<double>();
    for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-9).margin(1e-12));
  }
  nothing_left(*cluster);
}

namespace {

struct Wide : Actor {
  void join(Group group) {
    const ReducerOptions options{.buckets = {.first = 16 << 10, .others = 64 << 10}};
    reducer.emplace(group, Tensors{w}, options);
  }
  Task<double> backward(Tensor x) {
    const autograd::Context own;
    const auto running = reducer->backward(ops::sum(w * x), 1);
    co_return co_await running;
  }
  Tensor w = leaf(ones({1 << 16}));
  std::optional<GradientReducer> reducer;
  static constexpr auto remote = methods<&Wide::join, &Wide::backward>;
};

}  // namespace

TEST_CASE("each member sends as much as a ring would, and nothing goes through the driver") {
  const size_t n = GENERATE(2, 4);
  SimulatedCluster cluster(1, int(n) + 1, hosting<Wide>());
  std::vector<RRef<Wide>> members;
  for (size_t r = 0; r < n; ++r) members.push_back(cluster.here(0).spawn<Wide>(r + 1));
  const Group group(members);
  for (auto& m : members) cluster.await(m.call<&Wide::join>(group)).value();
  const auto pass = [&] {
    std::vector<Future<double>> asked;
    for (size_t r = 0; r < n; ++r) asked.push_back(members[r].call<&Wide::backward>(tensor(1.0F)));
    for (auto& a : asked) CHECK(cluster.await(a).value() == Approx(1 << 16));
  };
  const auto sent = [&](size_t from) {
    uint64_t bytes = 0;
    for (size_t to = 1; to <= n; ++to)
      bytes += cluster.network().counters("w" + std::to_string(from), "w" + std::to_string(to)).bytes;
    return bytes;
  };
  const auto driver = [&] {
    uint64_t bytes = 0;
    for (size_t r = 1; r <= n; ++r)
      bytes += cluster.network().counters("w0", "w" + std::to_string(r)).bytes +
               cluster.network().counters("w" + std::to_string(r), "w0").bytes;
    return bytes;
  };
  pass();  // connections are there now
  std::vector<uint64_t> before;
  for (size_t r = 1; r <= n; ++r) before.push_back(sent(r));
  const uint64_t driver_before = driver();
  pass();
  const double want = 2.0 * double(n - 1) / double(n) * 4 * (1 << 16);
  for (size_t r = 1; r <= n; ++r) {
    const auto bytes = double(sent(r) - before[r - 1]);
    CHECK(bytes >= 0.98 * want);
    CHECK(bytes <= 1.02 * want);
  }
  CHECK(driver() - driver_before < 4000 * n);
  // A member that dies is named to all others.
  std::vector<Future<double>> asked;
  for (size_t r = 0; r + 1 < n; ++r) asked.push_back(members[r].call<&Wide::backward>(tensor(1.0F)));
  const std::string last = "w" + std::to_string(n);
  cluster.network().schedule(std::chrono::milliseconds(20), [&] { cluster.network().crash(last); });
  for (auto& a : asked) {
    const auto lost = cluster.await(a);
    REQUIRE_FALSE(lost.ok());
    CHECK(lost.error().kind() == ErrorKind::disconnected);
    CHECK(lost.error().worker() == last);
  }
  members.clear();
  cluster.settle();
}
