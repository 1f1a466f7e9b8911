// A mixture of experts on ranks is that of one process, whoever has which tokens and experts.
#include "parallel/experts/experts.h"

#include <catch2/catch.hpp>

#include <numeric>

#include "actors/worker/start_task.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/experts.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

constexpr int64_t kWidth = 6, kHidden = 5;

struct Case {
  int64_t experts = 5, top_k = 2, shared = 0;
  double capacity = 0;
  bool normalize = true;
  std::vector<int64_t> tokens = {};  // of the ranks

  parallel::ExpertsOptions options() const {
    return {.top_k = top_k,
            .capacity = capacity,
            .normalize = normalize,
            .shared = shared,
            .activation = shared ? "relu" : "gelu",
            .dtype = float64};
  }
};

Tensor loss_of(const parallel::Mixture& mixed, const Tensor& weights, double share) {
  return ops::sum(ops::mul(ops::sin(mixed.y), weights)) + mixed.balance * (0.7 * share);
}

struct ExpertsRank : Actor {
  ExpertsRank(Group group, int64_t experts, int64_t top_k, int64_t shared, double capacity, bool normalize)
      : net(std::move(group), kWidth, kHidden, experts,
            Case{.experts = experts,
                 .top_k = top_k,
                 .shared = shared,
                 .capacity = capacity,
                 .normalize = normalize}
                .options()) {}
  void load(std::map<std::string, Tensor> whole) { tp::load_whole_state(net, whole); }
  Task<std::pair<Tensors, std::vector<int64_t>>> run(Tensor tokens, Tensor weights, double share) {
    x = tokens.clone_data().requires_grad_();
    Task<parallel::Mixture> mixing = net(x * 1.0);
    const parallel::Mixture mixed = co_await std::move(mixing);
    std::vector<int64_t> counts = mixed.tokens;
    counts.push_back(mixed.dropped);
    co_return std::pair(Tensors{loss_of(mixed, weights, share), mixed.y.detach(), mixed.balance.detach()},
                        counts);
  }
  std::map<std::string, Tensor> gradients() {
    std::map<std::string, Tensor> all{{"x", autograd::context_gradient(x)}};
    for (const auto& [name, t] : net.named_parameters())
      if (const Tensor g = autograd::context_gradient(t); g.defined()) all[name] = g;
    return all;
  }
  std::map<std::string, std::vector<int64_t>> placements() {
    std::map<std::string, std::vector<int64_t>> all;
    for (const auto& [name, p] : net.placements()) all[name] = p.numbers();
    return all;
  }
  parallel::Experts net;
  Tensor x;
  static constexpr auto remote =
      methods<&ExpertsRank::load, &ExpertsRank::run, &ExpertsRank::gradients, &ExpertsRank::placements>;
};

Tensor random(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return ops::to(ops::randn(shape, generator), float64);
}

// Outside of actors, where nothing waits.
parallel::Mixture alone(Cluster& cluster, parallel::Experts& net, const Tensor& x) {
  const autograd::Context context(cluster);
  Task<parallel::Mixture> mixing = net(x);
  return internal::actors::start_task<parallel::Mixture>(std::move(mixing)).get();
}

void check_near(const Tensor& got, const Tensor& expected) {
  if (!got.defined())
    CHECK((!expected.defined() || ops::abs(expected).sum().item() == 0));
  else
    CHECK(difference(got.detach(), expected.defined() ? expected.detach() : zeros_like(got), 1e-11, 1e-11) ==
          "");
}

void check_case(Cluster& cluster, const Case& c) {
  CAPTURE(c.experts, c.top_k, c.shared, c.capacity, c.normalize, c.tokens);
  const size_t n = c.tokens.size();
  const int64_t count = std::accumulate(c.tokens.begin(), c.tokens.end(), int64_t{0});
  parallel::Experts whole(Group(), kWidth, kHidden, c.experts, c.options());
  Generator generator(3);
  whole.reset(generator);
  const Tensor x = random({count, kWidth}, 5).requires_grad_(), weights = random({count, kWidth}, 6);
  const parallel::Mixture expected = alone(cluster, whole, x);
  std::map<std::string, Tensor> g;
  {
    Tensors leaves{x};
    std::vector<std::string> names{"x"};
    for (const auto& [name, t] : whole.named_parameters()) leaves.push_back(t), names.push_back(name);
    const Tensors all = autograd::grad({loss_of(expected, weights, 1)}, leaves);
    for (size_t i = 0; i < all.size(); ++i) g[names[i]] = all[i];
  }

  std::vector<Place> places;
  for (size_t r = 0; r < n; ++r) places.push_back(static_cast<int>(r + 1));
  const Group group(cluster, places, "ep");
  std::vector<RRef<ExpertsRank>> ranks;
  for (size_t r = 0; r < n; ++r)
    ranks.push_back(cluster.spawn<ExpertsRank>(static_cast<int>(r + 1), group, c.experts, c.top_k, c.shared,
                                               c.capacity, c.normalize));
  autograd::Context context(cluster);
  std::vector<Future<std::pair<Tensors, std::vector<int64_t>>>> calls;
  int64_t from = 0;
  for (size_t r = 0; r < n; ++r) {
    ranks[r].call<&ExpertsRank::load>(whole.state_dict()).get();
    const auto piece = [&](const Tensor& t) { return ops::slice(t.detach(), 0, from, from + c.tokens[r]); };
    calls.push_back(ranks[r].call<&ExpertsRank::run>(piece(x), piece(weights),
                                                     (1.0 + double(r)) * 2 / double(n * (n + 1))));
    from += c.tokens[r];
  }
  Tensor loss;
  std::vector<int64_t> counts = expected.tokens;
  counts.push_back(expected.dropped);
  from = 0;
  for (size_t r = 0; r < n; ++r) {
    const auto [tensors, told] = calls[r].get();
    loss = loss.defined() ? loss + tensors[0] : tensors[0];
    check_near(tensors[1], ops::slice(expected.y.detach(), 0, from, from + c.tokens[r]));
    check_near(tensors[2], expected.balance);
    CHECK(told == counts);
    from += c.tokens[r];
  }
  context.backward(loss);
  from = 0;
  for (size_t r = 0; r < n; ++r) {
    auto got = ranks[r].call<&ExpertsRank::gradients>().get();
    check_near(got["x"], ops::slice(g["x"], 0, from, from + c.tokens[r]));
    from += c.tokens[r];
    const auto cut = ranks[r].call<&ExpertsRank::placements>().get();
    for (const auto& [name, whole_gradient] : g) {
      CAPTURE(r, name);
      if (name == "x") continue;
      const auto at = cut.find(name);
      check_near(got[name], at == cut.end() ? whole_gradient
                                            : tp::Placement::of_numbers(at->second, name).of(whole_gradient));
    }
  }
}

}  // namespace

TEST_CASE("a mixture of experts on 1 to 4 ranks is that of one process, forward and back") {
  const auto cluster = Cluster::in_process(5, hosting<ExpertsRank>());
  const std::vector<std::vector<int64_t>> all{{9}, {4, 5}, {7, 0, 3}, {1, 6, 2, 4}};
  for (const auto& tokens : all) {
    check_case(*cluster, {.tokens = tokens});
    check_case(*cluster, {.top_k = 1, .tokens = tokens});
    check_case(*cluster, {.experts = 3, .top_k = 3, .normalize = false, .tokens = tokens});
    check_case(*cluster, {.capacity = 1, .tokens = tokens});
    check_case(*cluster, {.shared = 4, .capacity = 0.4, .tokens = tokens});
    check_case(*cluster, {.experts = 2, .top_k = 1, .capacity = 0.01, .tokens = tokens});
  }
  testing::nothing_left(*cluster);
}

TEST_CASE("an expert takes no more than its capacity, the first tokens of the first ranks") {
  const internal::parallel::Choices chosen{{3, 0, 2}, {1, 4, 0}, {2, 2, 5}};
  CHECK(internal::parallel::kept_of(chosen, -1) == chosen);
  CHECK(internal::parallel::kept_of(chosen, 4) ==
        internal::parallel::Choices{{3, 0, 2}, {1, 4, 0}, {0, 0, 2}});
  CHECK(internal::parallel::kept_of(chosen, 0) ==
        internal::parallel::Choices{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}});
  const internal::parallel::Routes routes({1, 0, 1, 2, 1}, {{1, 2, 1}, {2, 0, 1}}, {2, 1}, 0);
  CHECK(routes.order == std::vector<int64_t>{1, 0, 2, 3});
  CHECK(routes.rows == internal::parallel::Choices{{3, 1}, {2, 1}});
  CHECK(routes.by_expert == std::vector<int64_t>{0, 3, 4, 1, 2});
  CHECK(routes.of_expert == std::vector<int64_t>{3, 2});
}

TEST_CASE("experts that cannot be are refused in words") {
  const auto text = [](int64_t experts, const parallel::ExpertsOptions& options) {
    return std::string(error_of([&] { parallel::Experts(Group(), 4, 4, experts, options); }).what());
  };
  CHECK_THAT(text(2, {.top_k = 3}), Contains("[experts] top_k is 3 of 2 experts: give 1 to 2"));
  CHECK_THAT(text(2, {.top_k = 0}), Contains("give 1 to 2"));
  CHECK_THAT(text(2, {.capacity = -1}), Contains("capacity is -1"));
  CHECK_THAT(text(0, {}), Contains("0 experts"));
  CHECK_THAT(text(2, {.activation = "tanh"}), Contains("expected \"gelu\" or \"relu\""));
  const auto cluster = Cluster::in_process(1);
  parallel::Experts net(Group(), 4, 4, 3);
  CHECK_THAT(error_of([&] { (void)alone(*cluster, net, zeros({2, 5})); }).what(),
             Contains("expected [..., 4]"));
  CHECK(alone(*cluster, net, zeros({0, 4})).y.shape() == Shape{0, 4});
}
