// Initial values and masks without a seed: none alike, and the same when the program runs again.
#include <catch2/catch.hpp>
#include <functional>
#include <optional>

#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;

namespace {

template <class Make>
void differ_and_repeat(Make make) {
  manual_seed(1);
  auto a = make(), b = make();
  manual_seed(1);
  auto again = make();
  REQUIRE(a.parameters().size() > 0);
  size_t alike = 0;
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    alike += bit_equal(a.parameters()[i], b.parameters()[i]);
    CHECK(bit_equal(a.parameters()[i], again.parameters()[i]));
  }
  // What starts as zeros or ones is alike: norms, and biases of attention.
  INFO(a.str());
  CHECK(alike < a.parameters().size());
}

}  // namespace

TEST_CASE("two layers of one kind start differently, and as before when the program runs again") {
  differ_and_repeat([] { return nn::Linear(4, 4); });
  differ_and_repeat([] { return nn::Conv2d(2, 3, 3); });
  differ_and_repeat([] { return nn::Embedding(5, 4); });
  differ_and_repeat([] { return nn::EmbeddingBag(5, 4); });
  differ_and_repeat([] { return nn::LSTM(3, 4, {.layers = 2}); });
  differ_and_repeat([] { return nn::GRU(3, 4); });
  differ_and_repeat([] { return nn::MultiheadAttention(4, 2); });
  differ_and_repeat([] { return nn::TransformerEncoderLayer(4, 2); });
  differ_and_repeat([] { return nn::Sequential(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4)); });
  nn::Sequential net(nn::Linear(4, 4), nn::Linear(4, 4));
  CHECK_FALSE(bit_equal(net.parameters()[0], net.parameters()[2]));
}

TEST_CASE("dropouts have masks of their own, copies share them, and all come again with the seed") {
  const auto run = [] {
    manual_seed(3);
    nn::Dropout a, b;
    nn::Dropout copy = a;
    const Tensor x = ones({100});
    return Tensors{a(x), b(x), copy(x), a(x)};
  };
  const Tensors first = run(), again = run();
  for (size_t i = 0; i < first.size(); ++i) {
    CHECK(bit_equal(first[i], again[i]));
    for (size_t j = 0; j < i; ++j) CHECK_FALSE(bit_equal(first[i], first[j]));
  }
}

TEST_CASE("operators and initial values without a generator draw from the program's stream") {
  const auto run = [] {
    manual_seed(3);
    Tensor t = empty({4, 4});
    nn::init::xavier_normal_(t);
    return Tensors{ops::rand({16}),
                   ops::randn({16}, float64),
                   ops::randperm(16),
                   ops::rand({16}),
                   ops::dropout(ones({64}), 0.5),
                   ops::dropout(ones({64}), 0.5),
                   t};
  };
  const Tensors first = run(), again = run();
  for (size_t i = 0; i < first.size(); ++i) CHECK(bit_equal(first[i], again[i]));
  CHECK_FALSE(bit_equal(first[0], first[3]));
  CHECK_FALSE(bit_equal(first[4], first[5]));
}

TEST_CASE("a run that is resumed goes on with the masks that it would have had") {
  const Tensor x = ones({100});
  nn::Sequential net(nn::Dropout(0.5), nn::Dropout(0.5));
  (void)net(x);
  const auto generators = net.rng_state();
  const Tensor program = ops::get_rng_state();
  CHECK(generators.size() == 2);
  CHECK(generators.contains("1.generator"));
  const Tensor masks = net(x), numbers = ops::rand({8});

  manual_seed(77);
  nn::Sequential later(nn::Dropout(0.5), nn::Dropout(0.5));
  later.load_rng_state(generators);
  ops::set_rng_state(program);
  CHECK(bit_equal(later(x), masks));
  CHECK(bit_equal(ops::rand({8}), numbers));
  CHECK(later.state_dict().empty());

  CHECK_THAT(testing::text_of([&] { later.load_rng_state({}); }), Contains("missing 0.generator"));
  auto more = generators;
  more["2.generator"] = program;
  CHECK_THAT(testing::text_of([&] { later.load_rng_state(more); }), Contains("unexpected 2.generator"));
  more.erase("2.generator");
  more["1.generator"] = zeros({2});
  CHECK_THAT(testing::text_of([&] { later.load_rng_state(more); }),
             Contains("expected what get_rng_state() gave"));
  CHECK(bit_equal(later.rng_state().at("0.generator"), net.rng_state().at("0.generator")));
}

namespace {

// A model of three layers that were made in their order in it, or backwards, as g++ makes arguments; and the
// number that comes next.
template <class A, class B, class C>
std::pair<nn::Sequential, uint64_t> of_three(bool backwards, A a, B b, C c) {
  manual_seed(7);
  std::optional<decltype(a())> first;
  std::optional<decltype(b())> second;
  std::optional<decltype(c())> third;
  const std::function<void()> makes[] = {[&] { first.emplace(a()); }, [&] { second.emplace(b()); },
                                         [&] { third.emplace(c()); }};
  for (int i = 0; i < 3; ++i) makes[backwards ? 2 - i : i]();
  nn::Sequential net(std::move(*first), std::move(*second), std::move(*third));
  return {net, current_stream().next()};
}

bool same_model(nn::Module& a, nn::Module& b) {
  const auto x = a.state_dict(), y = b.state_dict(), r = a.rng_state(), s = b.rng_state();
  REQUIRE(x.size() == y.size());
  REQUIRE(r.size() == s.size());
  bool same = true;
  for (const auto& [name, t] : x) same = same && bit_equal(t, y.at(name));
  for (const auto& [name, t] : r) same = same && bit_equal(t, s.at(name));
  return same;
}

template <class A, class B, class C>
void one_model(A a, B b, C c) {
  auto forward = of_three(false, a, b, c), backward = of_three(true, a, b, c);
  INFO(forward.first[0].str() << ", " << forward.first[1].str() << ", " << forward.first[2].str());
  CHECK(same_model(forward.first, backward.first));
  CHECK(forward.second == backward.second);
}

// A layer with members of its own, which draws nothing itself.
struct Pair : nn::Layer {
  explicit Pair(int64_t width) : a(width, width), b(width, width) {}
  Tensor forward(const Tensor& x) override { return b(a(x)); }
  void members(nn::Members& m) override { m("a", a), m("b", b); }
  nn::Linear a;
  nn::GRU b;
};

// One whose constructor draws in its own way; or, as Module::start() has it.
struct Own : nn::Layer {
  explicit Own(bool noted) {
    w = empty({3}).requires_grad_();
    if (noted)
      start();
    else
      nn::init::normal_(w);
  }
  void reset(Generator& g) override { nn::init::normal_(w, 0, 1, g); }
  Tensor forward(const Tensor& x) override { return x * w; }
  void members(nn::Members& m) override { m("w", w); }
  Tensor w;
};

}  // namespace

TEST_CASE("one seed, one model: layers draw in their order in it, in whatever order they were made") {
  const auto linear = [] { return nn::Linear(5, 4); };
  one_model(
      linear, [] { return nn::ReLU(); }, [] { return nn::Linear(4, 3); });
  one_model([] { return nn::Dropout(0.5); }, linear, [] { return nn::Dropout(0.25); });
  one_model([] { return nn::MultiheadAttention(4, 2); }, [] { return nn::Embedding(3, 4); }, linear);
  one_model([] { return nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 6}); },
            [] { return nn::LayerNorm(4); }, [] { return nn::LSTM(4, 3, {.layers = 2}); });
  one_model([] { return nn::Conv2d(2, 3, 3); }, [] { return nn::BatchNorm2d(3); },
            [] { return nn::EmbeddingBag(3, 2); });
  one_model([] { return Pair(3); }, [] { return Own(true); }, [] { return Pair(2); });
  manual_seed(7);
  nn::Linear last(4, 5), second(3, 4), first(2, 3);
  nn::Sequential inner(std::move(first), nn::ReLU(), std::move(second));
  nn::Sequential outer(std::move(inner), std::move(last));
  manual_seed(7);
  nn::Linear a(2, 3), b(3, 4), c(4, 5);
  nn::Sequential in_order;
  in_order.add(nn::Sequential().add(a).add(nn::ReLU()).add(b)).add(c);
  CHECK(same_model(outer, in_order));
}

TEST_CASE("layers that are made in a call draw as those that are made one by one, also from a generator") {
  manual_seed(7);
  nn::Sequential added;
  added.add(nn::Linear(5, 4)).add(nn::Linear(4, 3)).add(nn::Linear(3, 2));
  manual_seed(7);
  nn::Sequential called(nn::Linear(5, 4), nn::Linear(4, 3), nn::Linear(3, 2));
  CHECK(same_model(added, called));
  Generator one(3), other(3), third(3);
  nn::Sequential by_one(nn::Linear(5, 4, one), nn::ReLU(), nn::Linear(4, 3, one));
  nn::Linear b(4, 3, other), a(5, 4, other);
  nn::Linear first(5, 4, third), second(4, 3, third);
  nn::Sequential by_other(std::move(a), nn::ReLU(), std::move(b)), in_order;
  in_order.add(first).add(nn::ReLU()).add(second);
  CHECK(same_model(by_one, in_order));
  CHECK(same_model(by_other, in_order));
  CHECK(one.position() == other.position());
}

TEST_CASE("layers that somebody has, wrote to, or drew in a way of their own keep their values") {
  const auto bits = [](nn::Linear& l) { return l.weight.detach().clone_data(); };
  manual_seed(7);
  nn::Linear b(3, 3), a(3, 3);
  const Tensor of_a = bits(a), of_b = bits(b);
  nn::Sequential shared(a, b);
  CHECK(bit_equal(a.weight, of_a));
  CHECK(bit_equal(b.weight, of_b));
  nn::Linear head(3, 3), body(3, 3);
  const Tensor of_body = bits(body);
  nn::Sequential around(nn::Sequential(body, nn::ReLU()), std::move(head));
  CHECK(bit_equal(body.weight, of_body));
  nn::Linear x(3, 3, Generator(1)), y(3, 3, Generator(1));  // of two generators that are alike
  const Tensor of_x = bits(x);
  nn::Sequential two(std::move(y), std::move(x));
  CHECK(bit_equal(two.parameters()[2], of_x));
  const auto known = [&](nn::Module& first, nn::Module& second) {
    const Tensor before = first.parameters()[0].detach().clone_data(),
                 next = second.parameters()[0].detach().clone_data();
    nn::DrawOrder::restore({&first, &second}, false);
    CHECK(bit_equal(first.parameters()[0], before));
    CHECK_THAT(testing::invalid_text([&] {
                 nn::DrawOrder::restore({&first, &second}, true);
               }),
               Contains("made in another order than that of the arguments") &&
                   Contains("Write nn::Sequential{...} with braces") && Contains("add() the layers"));
    CHECK(bit_equal(first.parameters()[0], before));
    CHECK(bit_equal(second.parameters()[0], next));
    nn::DrawOrder::restore({&second, &first}, true);  // as they were made
    CHECK(bit_equal(first.parameters()[0], before));
  };
  nn::Linear written(3, 3), later(3, 3);
  written.weight.detach().mul_(2);
  known(later, written);
  nn::Linear early(3, 3);
  const Own own(false);
  nn::Linear late(3, 3);
  known(late, early);
}
