// What a rank sends and keeps for a layer that is cut, beside the formulas of those who cut so first.
#include <catch2/catch.hpp>

#include "collective/engine.h"
#include "collective/mesh.h"
#include "parallel/context/transformer.h"
#include "parallel/experts/experts.h"
#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "rref/ref_table.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

constexpr int64_t kBatch = 4, kTime = 256, kWidth = 128, kHeads = 4, kExperts = 8;

nn::TransformerEncoderLayerOptions bytes_options() {
  return {
      .dim_feedforward = 4 * kWidth, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};
}

// A layer that is cut in the way that it is told.
struct BytesNet : nn::Module {
  BytesNet(const Mesh& mesh, const std::string& way) : group(mesh["ranks"]), pieces(way == "pieces") {
    if (way == "tp" || pieces) heads.emplace(group, kWidth, kHeads, bytes_options());
    if (way == "heads" || way == "ring")
      times.emplace(group, kWidth, kHeads, bytes_options(), way == "ring" ? cp::Way::ring : cp::Way::heads);
    if (way != "experts") return;
    experts.emplace(group, kWidth, 4 * kWidth, kExperts);
    const NoGradGuard off;  // what chooses experts by the first elements of a token
    experts->router.fill_(0.0);
    for (int64_t e = 0; e < kExperts; ++e) experts->router.slice(0, e, e + 1).slice(1, e, e + 1).fill_(1.0);
  }
  Task<Tensor> run(Tensor x) {
    const std::vector<int64_t> even = tp::even_sizes(kTime, group.size());
    if (heads && pieces) {
      Task<Tensor> running = heads->of_pieces(std::move(x), even);
      co_return co_await std::move(running);
    }
    if (heads) {
      Task<Tensor> running = (*heads)(std::move(x));
      co_return co_await std::move(running);
    }
    if (times) {
      Task<Tensor> running = (*times)(std::move(x), cp::Sequence(kTime, group.size()));
      co_return co_await std::move(running);
    }
    Task<parallel::Mixture> mixing = (*experts)(x);
    const parallel::Mixture mixed = co_await std::move(mixing);
    co_return mixed.y;
  }
  void members(nn::Members& m) override {
    if (heads) m("layer", *heads);
    if (times) m("layer", *times);
    if (experts) m("layer", *experts);
  }
  Group group;
  bool pieces;
  std::optional<tp::TransformerEncoderLayer> heads;
  std::optional<cp::TransformerEncoderLayer> times;
  std::optional<parallel::Experts> experts;
};

struct BytesRank : nn::ModuleActor<BytesNet> {
  BytesRank(const Mesh& mesh, const std::string& way) : ModuleActor(mesh, way) {}
  Task<Tensor> loss(Tensor x) {
    Task<Tensor> running = net.run(ops::mul(x, 1.0));
    const Tensor y = co_await std::move(running);
    co_return ops::mean(ops::mul(y, y));
  }
  static constexpr auto remote = methods<&BytesRank::loss>;
};

struct Bytes {
  double forward = 0, back = 0, kept = 0;  // of a rank
};

// Of token t the experts are t and t + 1, modulo their number: so all have the same load.
Tensor tokens_of(size_t rank, int64_t some) {
  const Tensor x = ops::sin(arange(kBatch * some * kWidth).to(float32) * (1.0 + double(rank)));
  const Tensor tokens = x.reshape({kBatch * some, kWidth}), number = arange(kBatch * some);
  const Tensor chosen = ops::one_hot(ops::remainder(number, kExperts), kExperts) * 4 +
                        ops::one_hot(ops::remainder(number + 1, kExperts), kExperts) * 2;
  return ops::cat({chosen.to(float32), tokens.slice(1, kExperts, kWidth)}, 1).reshape({kBatch, some, kWidth});
}

Bytes bytes_of(const std::string& way, size_t n) {
  SimulatedCluster cluster(1, static_cast<int>(n) + 1, hosting<BytesRank>());
  const Here here(internal::rref::RefTable::of(cluster.worker(0)));
  std::vector<Place> places;
  for (size_t i = 1; i <= n; ++i) places.emplace_back("w" + std::to_string(i));
  const auto sent = [&] {
    int64_t all = 0;
    for (size_t i = 1; i <= n; ++i)
      all += internal::collective::GroupEngine::of(cluster.worker(i)).sent_bytes();
    return double(all) / double(n);
  };
  Tensors xs;
  const bool whole = way == "tp";
  const int64_t some = whole ? kTime : kTime / int64_t(n);
  for (size_t r = 0; r < n; ++r) xs.push_back(tokens_of(whole ? 0 : r, some));
  Bytes out;
  {
    const auto model = parallel::spawn<BytesRank>(here, Mesh(cluster.worker(0), {{"ranks", n}}, places), way);
    for (int round = 0; round < 2; ++round) {  // the first one makes what is made once
      cluster.settle();
      const size_t before = allocator_stats().in_use;
      const double at_first = sent();
      autograd::Context step(cluster.worker(0));
      const auto losses =
          cluster.await(all(model.call<&BytesRank::loss>(parallel::along("ranks", xs)))).value();
      const Tensor loss = whole ? parallel::same_on_all(losses) : parallel::weighted_mean(losses);
      cluster.settle();
      out.kept = (double(allocator_stats().in_use) - double(before)) / double(n);
      out.forward = sent() - at_first;
      cluster.await(step.backward_async(loss)).value();
      out.back = sent() - at_first - out.forward;
    }
  }
  cluster.settle();
  return out;
}

}  // namespace

TEST_CASE("a rank sends and keeps of a layer what formulas say") {
  const double all = 4.0 * kBatch * kTime * kWidth, h = kWidth, e = kExperts, k = 2;
  const double layer = 4 * (12 * h * h + 13 * h) / all, router = 4 * e * h / all;
  for (const size_t ranks : {1, 2, 4}) {
    const double n = double(ranks), sum = 2 * (n - 1) / n, exchange = (n - 1) / (n * n);
    // What the loss of the test keeps is beside them: the result.
    const std::map<std::string, Bytes> formulas{
        {"tp", {2 * sum, 2 * sum, 4 + 12 / n + 1}},
        {"pieces", {2 * sum, 2 * sum, 2 * (n > 1) + (n > 1 ? 14 : 16) / n + 1 / n}},
        {"heads", {4 * exchange, 4 * exchange + layer * sum, 17 / n + 1 / n}},
        {"ring", {sum, n > 1 ? sum + 2 + layer * sum : 0, 17 / n + 1 / n}},
        {"experts", {2 * k * exchange, 2 * k * exchange + router * sum, (1 + 10 * k) / n + 1 / n}}};
    for (const auto& [way, formula] : formulas) {
      const Bytes measured = bytes_of(way, ranks);
      CAPTURE(way, n);
      CHECK(measured.forward / all == Approx(formula.forward).epsilon(0.02));
      CHECK(measured.back / all == Approx(formula.back).epsilon(0.02));
      CHECK(measured.kept / all == Approx(formula.kept).epsilon(0.02));
    }
  }
}
