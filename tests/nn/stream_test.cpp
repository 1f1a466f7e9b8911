// Initial values and masks without a seed: none alike, and the same when the program runs again.
#include <catch2/catch.hpp>

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
