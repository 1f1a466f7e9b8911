// Gradients that are summed over a group while the backward pass runs: those of one model on the whole batch.
#include "parallel/data/gradient_reducer.h"

#include <catch2/catch.hpp>

#include "autograd/hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "tests/support/sim_cluster.h"
#include "troupe/replicas.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;
using testing::SimCluster;

namespace {

Tensor numbers(const Shape& shape, int64_t first) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(double((i * 5 + first) % 7 - 3) / 4);
  return tensor(v, float64).reshape(shape);
}
Tensor leaf(Tensor t) {
  t.requires_grad_();
  return t;
}

struct Model {
  Tensor first = leaf(numbers({3, 4}, 1)), bias = leaf(numbers({4}, 2)), second = leaf(numbers({4, 2}, 4)),
         sometimes = leaf(numbers({2}, 3)), never = leaf(ones({3}, float64)),
         single = leaf(ones({2}, float32));
  Tensors all() const { return {first, bias, second, sometimes, never, single}; }
  // `second` is used twice.
  Tensor loss(const Tensor& x, const Tensor& y, bool some) const {
    const Tensor hidden = ops::tanh(ops::matmul(x, first) + bias);
    Tensor out = ops::matmul(hidden, second) + ops::matmul(ops::tanh(hidden), second);
    if (some) out = out * sometimes + single.to(float64);
    const Tensor away = out - y;
    return ops::mean(away * away);
  }
};

struct Member : Actor {
  void join(Group group, int64_t first, int64_t others) {
    const ReducerOptions options{.buckets = {static_cast<size_t>(first), static_cast<size_t>(others)}};
    reducer = GradientReducer(group, model.all(), options);  // while there is one, it is refused
  }
  Task<double> backward(Tensor x, Tensor y, bool some) {
    Tensor loss;
    if (x.size(0) > 0) loss = model.loss(x, y, some);
    if (fails && loss.defined()) {
      loss = loss * 1;
      autograd::register_hook(loss, [](const Tensor&) -> Tensor {
        throw_error(ErrorKind::failed, "[member] out of paper");
      }).keep();
    }
    const auto running = reducer->backward(loss, static_cast<double>(x.size(0)));
    co_return co_await running;
  }
  Task<double> later(Tensor x, Tensor y) {
    const Accumulation accumulating = reducer->accumulate();
    const auto running = backward(x, y, false);
    co_return co_await running;
  }
  void fail(bool on) { fails = on; }
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (const Tensor& p : model.all()) all.push_back(autograd::context_gradient(p));
    return all;
  }
  Tensors parameters() override { return model.all(); }
  Model model;
  std::optional<GradientReducer> reducer;
  bool fails = false;
  static constexpr auto remote =
      methods<&Member::join, &Member::backward, &Member::later, &Member::fail, &Member::gradients>;
};

using Cuts = std::vector<int64_t>;

// Ranks with an odd number use the parameter `sometimes`.
bool some(size_t rank) { return rank % 2 == 1; }

// What one process would have: by the weights of the rows.
struct Whole {
  Model model;
  double add(const Cuts& cuts, const Tensor& x, const Tensor& y, bool with_some = true, double of = 0) {
    Tensor sum;
    const double total = of ? of : double(cuts.back() - cuts.front());
    for (size_t r = 0; r + 1 < cuts.size(); ++r) {
      if (cuts[r] == cuts[r + 1]) continue;
      const Tensor loss = model.loss(x.slice(0, cuts[r], cuts[r + 1]), y.slice(0, cuts[r], cuts[r + 1]),
                                     with_some && some(r)) *
                          (double(cuts[r + 1] - cuts[r]) / total);
      sum = sum.defined() ? sum + loss : loss;
    }
    autograd::backward(sum);
    return sum.item();
  }
};

struct World {
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<Member>> members;
  explicit World(size_t n, int64_t first = 1 << 20, int64_t others = 25 << 20)
      : cluster(Cluster::in_process(3, hosting<Member>())) {
    for (size_t r = 0; r < n; ++r) members.push_back(cluster->spawn<Member>(r % 3));
    const Group group(members);
    for (auto& m : members) m.call<&Member::join>(group, first, others).get();
  }
  std::vector<Result<double>> pass(const Cuts& cuts, const Tensor& x, const Tensor& y, bool later = false) {
    std::vector<Future<double>> asked;
    for (size_t r = 0; r < members.size(); ++r) {
      const Tensor mine = x.slice(0, cuts[r], cuts[r + 1]), target = y.slice(0, cuts[r], cuts[r + 1]);
      asked.push_back(later ? members[r].call<&Member::later>(mine, target)
                            : members[r].call<&Member::backward>(mine, target, some(r)));
    }
    std::vector<Result<double>> out;
    for (auto& a : asked) out.push_back(a.wait());
    return out;
  }
  // Those of the first; the others have the same bits.
  std::vector<Tensor> gradients() {
    const auto first = members[0].call<&Member::gradients>().get();
    for (auto& m : members) {
      const auto other = m.call<&Member::gradients>().get();
      for (size_t i = 0; i < first.size(); ++i) {
        REQUIRE(other[i].defined() == first[i].defined());
        if (first[i].defined()) CHECK(bit_equal(other[i], first[i]));
      }
    }
    return first;
  }
  void at_rest() {
    nothing_left(*cluster);
    for (const auto& w : cluster->workers()) CHECK(cluster->metrics(w)["collectives"] == 0);
  }
};

void close(const std::vector<Tensor>& got, const Model& want) {
  const Tensors all = want.all();
  for (size_t i = 0; i < all.size(); ++i) {
    INFO("parameter " << i);
    REQUIRE(got[i].defined() == all[i].grad().defined());
    if (!got[i].defined()) continue;
    CHECK(got[i].dtype() == all[i].dtype());
    const auto a = got[i].to(float64).to_vector<double>(), b = all[i].grad().to(float64).to_vector<double>();
    const double tolerance = got[i].dtype() == float64 ? 1e-9 : 1e-6;
    for (size_t k = 0; k < a.size(); ++k) CHECK(a[k] == Approx(b[k]).epsilon(tolerance).margin(1e-12));
  }
}

Tensor inputs() { return numbers({8, 3}, 1); }
Tensor targets() { return numbers({8, 2}, 2); }

}  // namespace

TEST_CASE("gradients are those of one process on the whole batch, whatever the rows and the buckets") {
  for (const Cuts& cuts : std::vector<Cuts>{
           {0, 8}, {0, 4, 8}, {0, 1, 8}, {0, 0, 8}, {0, 2, 4, 6, 8}, {0, 1, 3, 8, 8}, {0, 0, 0, 5, 8}}) {
    CAPTURE(cuts);
    Whole whole;
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

TEST_CASE("passes of one context add up, and those that accumulate are one batch with the next") {
  const Cuts a{0, 3, 8}, b{0, 5, 8}, c{0, 1, 2};
  World world(2);
  Whole whole;
  {
    const autograd::Context step(*world.cluster);
    whole.add(a, inputs(), targets());
    for (const auto& r : world.pass(a, inputs(), targets())) REQUIRE(r.ok());
    close(world.gradients(), whole.model);
    for (const auto& r : world.pass(b, inputs(), targets(), true)) REQUIRE(r.ok());
    for (size_t r = 0; r < 2; ++r)  // nothing that differs between members is in their gradients
      close(world.gradients(), whole.model);
    double loss = whole.add(b, inputs(), targets(), false, 10);
    loss += whole.add(c, inputs(), targets(), true, 10);
    for (const auto& r : world.pass(c, inputs(), targets())) CHECK(r.value() == Approx(loss).epsilon(1e-12));
    close(world.gradients(), whole.model);
    whole.add(a, inputs(), targets());  // nothing is left to be counted twice
    for (const auto& r : world.pass(a, inputs(), targets())) REQUIRE(r.ok());
    close(world.gradients(), whole.model);
  }
  world.at_rest();
}

TEST_CASE("a pass that fails on one member fails on all, and leaves the gradients as they were") {
  const Cuts cuts{0, 2, 5, 8};
  World world(3, 1, 64);
  Whole whole;
  {
    const autograd::Context step(*world.cluster);
    whole.add(cuts, inputs(), targets());
    for (const auto& r : world.pass(cuts, inputs(), targets())) REQUIRE(r.ok());
    world.members[1].call<&Member::fail>(true).get();
    const auto failed = world.pass(cuts, inputs(), targets());
    for (size_t r = 0; r < 3; ++r) {
      REQUIRE_FALSE(failed[r].ok());
      CHECK(failed[r].error().kind() == ErrorKind::failed);
      CHECK_THAT(failed[r].error().what(),
                 Contains(r == 1 ? "out of paper" : "the pass of another member has failed"));
    }
    close(world.gradients(), whole.model);
    world.members[1].call<&Member::fail>(false).get();
    whole.add(cuts, inputs(), targets());
    for (const auto& r : world.pass(cuts, inputs(), targets())) REQUIRE(r.ok());
    close(world.gradients(), whole.model);
  }
  world.at_rest();
}

TEST_CASE("what a reducer cannot do is refused, with what to write") {
  World world(2);
  const Group group(world.members);
  CHECK_THAT(error_of([&] { world.members[0].call<&Member::join>(group, 1, 1).get(); }).what(),
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

TEST_CASE("buckets go from the last parameter to the first, each of one dtype") {
  const Tensors p{ones({100}), ones({4}, float64), ones({10}), ones({300}), ones({2})};
  using Buckets = std::vector<std::vector<size_t>>;
  CHECK(buckets_of(p, {}) == Buckets{{4, 3, 2, 0}, {1}});
  CHECK(buckets_of(p, {.first = 8, .others = 440}) == Buckets{{4}, {3}, {2, 0}, {1}});
  CHECK(buckets_of(p, {.first = 1, .others = 1}) == Buckets{{4}, {3}, {2}, {1}, {0}});
  CHECK(buckets_of({}, {}).empty());
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
  SimCluster cluster(1, int(n) + 1, hosting<Wide>());
  std::vector<RRef<Wide>> members;
  for (size_t r = 0; r < n; ++r) members.push_back(cluster.spawn<Wide>(0, r + 1));
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
