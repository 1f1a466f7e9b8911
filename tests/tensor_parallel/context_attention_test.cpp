// Attention over a sequence that is cut over ranks is that of one process, forward and back.
#include "parallel/context/attention.h"

#include <catch2/catch.hpp>

#include <thread>

#include "parallel/mesh/weighted_mean.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/context_parallel.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct Case {
  std::string way, cut;
  int64_t time = 0, heads = 3, of_keys = 3;
  bool causal = false;
};

cp::Sequence sequence_of(int64_t time, size_t ranks, const std::string& cut) {
  return cp::Sequence(time, ranks, cut == "zigzag" ? cp::Cut::zigzag : cp::Cut::in_order);
}

Tensor random(const Shape& shape, uint64_t seed, DType dtype) {
  Generator generator(seed);
  return ops::to(ops::randn(shape, generator), dtype);
}

// A loss that each position has a part of.
Tensor loss_of(const Tensor& y, const Tensor& weights) {
  return ops::sum(ops::mul(ops::sin(y * 2.0), weights));
}

struct AttentionRank : Actor {
  void start(Tensor q, Tensor k, Tensor v) {
    leaves.clear();
    for (const Tensor& t : {q, k, v}) leaves.push_back(t.clone_data().requires_grad_());
  }
  Task<Tensors> run(Group group, std::string way, std::string cut, int64_t time, bool causal,
                    Tensor weights) {
    const cp::AttentionOptions options{
        .way = way == "ring" ? cp::Way::ring : cp::Way::heads, .causal = causal, .layer = "test"};
    Task<Tensor> attending = cp::attention(leaves[0], leaves[1] * 1.0, leaves[2], group,
                                           sequence_of(time, group.size(), cut), options);
    const Tensor y = co_await std::move(attending);
    co_return Tensors{loss_of(y, weights), y.detach()};
  }
  Tensors gradients() {
    Tensors all;
    for (const Tensor& x : leaves) all.push_back(autograd::context_gradient(x));
    return all;
  }
  Tensors leaves;
  static constexpr auto remote =
      methods<&AttentionRank::start, &AttentionRank::run, &AttentionRank::gradients>;
};

struct World {
  explicit World(int n) : cluster(Cluster::in_process(n + 1, hosting<AttentionRank>())) {
    for (int r = 0; r < n; ++r) ranks.push_back(cluster->spawn<AttentionRank>(r + 1));
    group = Group(ranks, "cp");
  }
  ~World() {
    ranks.clear();
    testing::nothing_left(*cluster);
    for (const auto& name : cluster->workers())
      for (const char* what : {"collectives", "early_collectives"})
        while (cluster->metrics(name)[what] != 0) std::this_thread::yield();
  }
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<AttentionRank>> ranks;
  Group group;
};

void check_case(World& world, const Case& c, DType dtype, double near) {
  CAPTURE(world.ranks.size(), c.way, c.cut, c.time, c.causal, c.heads, c.of_keys);
  const size_t n = world.ranks.size();
  const cp::Sequence sequence = sequence_of(c.time, n, c.cut);
  Tensors whole;
  for (uint64_t i = 0; i < 3; ++i)
    whole.push_back(random({2, i ? c.of_keys : c.heads, c.time, 4}, 5 + i, dtype).requires_grad_());
  const Tensor weights = random({2, c.heads, c.time, 4}, 9, dtype);
  const Tensor y = ops::scaled_dot_product_attention(whole[0], whole[1], whole[2], {}, 0, c.causal, {},
                                                     c.heads != c.of_keys);
  const Tensors expected = autograd::grad({loss_of(y, weights)}, whole);

  autograd::Context context(*world.cluster);
  std::vector<Future<Tensors>> calls;
  for (size_t r = 0; r < n; ++r) {
    const auto piece = [&](const Tensor& t) { return sequence.piece(t.detach(), 2, r); };
    world.ranks[r].call<&AttentionRank::start>(piece(whole[0]), piece(whole[1]), piece(whole[2])).get();
    calls.push_back(world.ranks[r].call<&AttentionRank::run>(world.group, c.way, c.cut, c.time, c.causal,
                                                             piece(weights)));
  }
  Tensor loss;
  const auto results = all(calls).get();
  for (size_t r = 0; r < n; ++r) {
    loss = loss.defined() ? loss + results[r][0] : results[r][0];
    CHECK(difference(results[r][1], sequence.piece(y.detach(), 2, r), near, near) == "");
  }
  for (int times = 1; times <= 2; ++times) {  // the second pass adds the same
    context.backward(loss, {}, {.retain_graph = times == 1});
    for (size_t r = 0; r < n; ++r) {
      const Tensors got = world.ranks[r].call<&AttentionRank::gradients>().get();
      for (size_t i = 0; i < 3; ++i)
        CHECK(difference(got[i].detach(), sequence.piece(expected[i], 2, r) * double(times), near, near) ==
              "");
    }
  }
}

}  // namespace

TEST_CASE("positions of a sequence are cut evenly, and zigzag gives ranks the same work") {
  for (const char* cut : {"in order", "zigzag"})
    for (size_t ranks = 1; ranks <= 5; ++ranks)
      for (const int64_t time : {0, 1, 4, 9, 40}) {
        const cp::Sequence sequence = sequence_of(time, ranks, cut);
        CAPTURE(cut, ranks, time);
        const Tensor whole = ops::reshape(arange(2.0 * double(time)), {2, time});
        Tensors pieces;
        for (size_t r = 0; r < ranks; ++r) {
          pieces.push_back(sequence.piece(whole, 1, r));
          CHECK(pieces.back().size(1) == sequence.sizes()[r]);
        }
        CHECK(sequence.in_order(ops::cat(pieces, 1), 1).equal(whole));
        CHECK(sequence.by_ranks(whole, 1).equal(ops::cat(pieces, 1)));
        if (cut[0] != 'z' || time != 40 || 20 % ranks) continue;
        std::vector<int64_t> work(ranks, 0);  // pairs of positions that see each other
        for (size_t r = 0; r < ranks; ++r)
          for (const cp::Positions& p : sequence.of(r))
            for (int64_t i = p.from; i < p.end(); ++i) work[r] += i + 1;
        for (size_t r = 1; r < ranks; ++r) CHECK(work[r] == work[0]);
      }
  CHECK_THAT(error_of([] { cp::Sequence(-1, 2); }).what(), Contains("[sequence] -1 positions over 2 ranks"));
  CHECK_THAT(error_of([] { (void)cp::Sequence(4, 2).piece(zeros({3}), 0, 0); }).what(),
             Contains("has no 4 positions"));
}

TEST_CASE("attention over a cut sequence is that of one process, on 1 to 4 ranks") {
  for (int n = 1; n <= 4; ++n) {
    World world(n);
    for (const char* way : {"heads", "ring"})
      for (const char* cut : {"in order", "zigzag"})
        for (const bool causal : {false, true})
          for (const int64_t time : {2, 7, 16})
            check_case(world, {.way = way, .cut = cut, .time = time, .causal = causal}, float64, 1e-12);
    for (const char* way : {"heads", "ring"})
      check_case(world, {.way = way, .cut = "zigzag", .time = 33, .causal = true}, float32, 2e-5);
    check_case(world, {.way = "heads", .cut = "zigzag", .time = 9, .heads = 6, .of_keys = 2, .causal = true},
               float64, 1e-12);
  }
}

TEST_CASE("what attention over ranks cannot do is refused in words") {
  World world(2);
  const auto text = [&](const std::string& way, int64_t time, const Tensor& q, const Tensor& k) {
    std::vector<Future<Tensors>> calls;
    for (const auto& r : world.ranks) {
      r.call<&AttentionRank::start>(q, k, k).get();
      calls.push_back(r.call<&AttentionRank::run>(world.group, way, "zigzag", time, false, zeros({1})));
    }
    std::string what;
    for (const auto& c : calls) what = error_of([&] { c.get(); }).what();
    return what;
  };
  const Tensor q = zeros({1, 4, 3, 2});
  autograd::Context context(*world.cluster);
  CHECK_THAT(text("heads", 8, q, q), Contains("of test") && Contains("of a sequence of 8 positions"));
  CHECK_THAT(text("heads", 6, q, zeros({1, 3, 3, 2})), Contains("heads of k have to divide"));
  CHECK_THAT(text("ring", 6, q, zeros({1, 2, 3, 2})), Contains("use Way::heads"));
  CHECK_THAT(text("ring", 6, q, zeros({1, 4, 3})), Contains("expected [batch, heads, time, width]"));
  std::vector<Future<Tensors>> calls;
  for (const auto& r : world.ranks) {
    r.call<&AttentionRank::start>(q, q, q).get();
    calls.push_back(r.call<&AttentionRank::run>(world.group, "ring", "zigzag", 6, true, ones({1})));
  }
  const auto results = all(calls).get();
  const Tensor loss = results[0][0] + results[1][0];
  CHECK_THAT(error_of([&] { context.backward(loss, {}, {.create_graph = true}); }).what(),
             Contains("[ring_attention] it has no second derivative"));
  context.backward(loss);
}
