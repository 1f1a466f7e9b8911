// Rotary embeddings beside those of transformers (tests/oracle/make_rotary.py).
#include <catch2/catch.hpp>
#include <set>

#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;
using Catch::Contains;

namespace {

ops::RotaryOptions options_of(const nlohmann::json& named) {
  ops::RotaryOptions o;
  o.theta = named.value("theta", o.theta);
  o.scaling = named.value("scaling", o.scaling);
  o.factor = named.value("factor", o.factor);
  o.original_max_position_embeddings = named.value("original_max_position_embeddings", int64_t{0});
  o.sequence_length = named.value("sequence_length", int64_t{0});
  o.beta_fast = named.value("beta_fast", o.beta_fast);
  o.beta_slow = named.value("beta_slow", o.beta_slow);
  o.attention_factor = named.value("attention_factor", o.attention_factor);
  return o;
}

std::string refusal(int64_t width, const ops::RotaryOptions& options) {
  return testing::text_of([&] { ops::rotary_table(tensor({1, 2}), width, options); });
}

TEST_CASE("tables and turned columns are those of transformers, in every scaling") {
  const auto file = testing::read_oracle("rotary.json");
  const Tensor positions = tensor(file.at("positions").get<std::vector<int64_t>>());
  const Tensor x = testing::to_tensor(file.at("x"), float32);
  std::set<std::string> seen;
  for (const auto& c : file.at("cases")) {
    INFO(c.at("named").dump());
    seen.insert(c.at("named").at("scaling"));
    const auto [cos, sin] = ops::rotary_table(positions, file.at("width"), options_of(c.at("named")));
    const auto near = [&](const Tensor& got, const char* name) {
      INFO(name);  // angles of up to 1,000 have 4 digits less
      CHECK(testing::difference(got, testing::to_tensor(c.at(name), float32), 0, 2e-4) == "");
    };
    near(cos, "cos");
    near(sin, "sin");
    near(ops::rotary(x, cos, sin), "halves");
    near(ops::rotary(x, cos, sin, true), "pairs");
  }
  CHECK(seen == std::set<std::string>{"default", "linear", "dynamic", "yarn", "llama3"});
}

TEST_CASE("columns behind the pairs stay, and positions may differ from row to row") {
  const auto [cos, sin] = ops::rotary_table(tensor({{0, 1}, {5, 6}}), 4);
  const Tensor x = ops::rand({2, 3, 2, 6}, Generator(1), float64);
  const Tensor y = ops::rotary(x, cos.unsqueeze(1), sin.unsqueeze(1));
  CHECK(bit_equal(y.slice(-1, 4).contiguous(), x.slice(-1, 4).contiguous()));
  for (const int64_t row : {0, 1})
    CHECK(testing::difference(y[row], ops::rotary(x[row], cos[row], sin[row]), 1e-12, 1e-12) == "");
  CHECK(testing::difference(y[0].select(1, 0), x[0].select(1, 0), 1e-12, 1e-12) == "");  // by 0 degrees
}

TEST_CASE("halves are rounded once") {
  const auto [cos, sin] = ops::rotary_table(arange(8), 16);
  const Tensor x = ops::randn({8, 16}, Generator(1)).to(bfloat16);
  CHECK(bit_equal(ops::rotary(x, cos, sin), ops::rotary(x.to(float32), cos, sin).to(bfloat16)));
}

TEST_CASE("an odd kind of rotary embedding is refused by what it lacks") {
  CHECK_THAT(refusal(5, {}), Contains("width must be even and at least 2, got 5"));
  CHECK_THAT(refusal(4, {.scaling = "longrope"}), Contains("\"llama3\", got \"longrope\""));
  CHECK_THAT(refusal(4, {.scaling = "yarn", .factor = 2}),
             Contains("needs original_max_position_embeddings"));
  CHECK_THAT(refusal(4, {.scaling = "linear", .factor = 0.5}),
             Contains("factor must be at least 1, got 0.5"));
  CHECK_THAT(refusal(4, {.theta = -1}), Contains("theta must be above 0"));
  const Tensor table = zeros({3, 2});
  CHECK_THAT(testing::text_of([&] {
               ops::rotary(zeros({3, 3}), table, table);
             }),
             Contains("do not broadcast to the halves of float32 [3, 3]"));
  CHECK_THAT(testing::text_of([&] { ops::rotary(zeros({4, 4}), table, table); }), Contains("[rotary]"));
}

}  // namespace
