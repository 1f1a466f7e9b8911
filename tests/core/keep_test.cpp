// Keep: variables that are state, and what is found of an owner.
#include <catch2/catch.hpp>
#include <cstring>

#include "core/codec/keep.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/inplace_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct KeptPole {
  double angle = 0;
  int64_t steps = 0;
  Tensor push;
};

Tensor bytes_of(const std::string& text) {
  const Tensor t = empty({static_cast<int64_t>(text.size())}, uint8);
  if (!text.empty()) std::memcpy(t.data<uint8_t>(), text.data(), text.size());
  return t;
}

}  // namespace

TEST_CASE("what is kept comes back exactly") {
  Generator random(7);
  (void)random.next();
  KeptPole pole{0.1 + 0.2, 12, tensor({1.5, -2.0})};
  std::vector<double> rewards{1, 1.0 / 3, -0.0};
  std::map<std::string, int64_t> counts{{"a", -3}, {"", int64_t{1} << 62}};
  std::optional<std::string> name = "x\0y";
  bool on = true;
  Tensor odds, parameter = tensor({1.0, 2.0}).requires_grad_();
  Keep keep("random", random, "pole", pole, "rewards", rewards, "counts", counts, "name", name, "on", on,
            "odds", odds, "parameter", parameter);
  const StateDict state = keep.state();
  CHECK(state.at("pole.0").shape() == Shape{2});
  const uint64_t next = random.next();
  write_data<float>(pole.push, "test")[0] = 9;
  pole = {}, rewards.clear(), counts.clear(), name.reset(), on = false, odds = ones({3});
  write_data<float>(parameter, "test")[0] = 5;
  const Tensor handle = parameter;
  keep.load_state(state);
  CHECK(random.next() == next);
  CHECK(pole.angle == 0.1 + 0.2);
  CHECK(pole.steps == 12);
  CHECK(bit_equal(pole.push, tensor({1.5, -2.0})));
  CHECK(rewards == std::vector<double>{1, 1.0 / 3, -0.0});
  CHECK(std::signbit(rewards[2]));
  CHECK(counts == std::map<std::string, int64_t>{{"a", -3}, {"", int64_t{1} << 62}});
  CHECK(name == "x\0y");
  CHECK(on);
  CHECK_FALSE(odds.defined());
  CHECK(handle.is_same(parameter));  // what an optimizer has
  CHECK(bit_equal(parameter.detach(), tensor({1.0, 2.0})));
  CHECK(state.size() == keep.state().size());
}

TEST_CASE("large tensors that are kept are as they were, whatever is written later") {
  Tensor large = zeros({5000});
  Keep keep("large", large);
  const StateDict state = keep.state();
  write_data<float>(large, "test")[17] = 3;
  CHECK(state.at("large.0").data<float>()[17] == 0);
  keep.load_state(state);
  CHECK(large.data<float>()[17] == 0);
  write_data<float>(large, "test")[17] = 4;  // and a state can be loaded twice
  CHECK(state.at("large.0").data<float>()[17] == 0);
}

TEST_CASE("a state of other variables is refused, with nothing changed") {
  int64_t a = 1, b = 2;
  StateDict of_both;
  {
    Keep both("a", a, "b", b);
    of_both = both.state();
  }
  StateDict of_one = of_both;
  of_one.erase("b");
  a = 3;
  Keep keep("a", a);
  CHECK_THAT(error_of([&] { keep.load_state(of_both); }).what(), Contains("\"b\", which is not kept here"));
  CHECK(a == 3);
  Keep more("a", a, "b", b);
  CHECK_THAT(error_of([&] { more.load_state(of_one); }).what(), Contains("the checkpoint has no \"b\""));
  CHECK(a == 3);
  double other = 0;
  std::string text;
  Keep typed("a", text);
  CHECK_THAT(error_of([&] { typed.load_state(of_one); }).what(), Contains("expected string, got int64"));
  CHECK_THAT(error_of([&] { Keep twice("a", a, "a", other); }).what(), Contains("two variables are called"));
  CHECK_THAT(error_of([&] { Keep dotted("a.b", a); }).what(), Contains("without dots"));
}

TEST_CASE("bytes that no state has are refused, never more than read") {
  std::vector<std::string> list{"one", "two"};
  Keep keep("list", list);
  const StateDict good = keep.state();
  const Tensor& t = good.at("list");
  const std::string whole(reinterpret_cast<const char*>(t.data<uint8_t>()), static_cast<size_t>(t.numel()));
  for (size_t n = 0; n < whole.size(); ++n)
    CHECK(error_of([&] {
            keep.load_state({{"list", bytes_of(whole.substr(0, n))}});
          }).kind() == ErrorKind::invalid);
  CHECK_THROWS_AS(keep.load_state({{"list", bytes_of(whole + "x")}}), Error);
  for (size_t i = 0; i < whole.size(); ++i)
    for (const int flip : {1, 128, 255}) {  // another value, or an error: it ends
      std::string other = whole;
      other[i] = static_cast<char>(other[i] ^ flip);
      try {
        keep.load_state({{"list", bytes_of(other)}});
      } catch (const Error& e) {
        CHECK(e.kind() == ErrorKind::invalid);
      }
    }
  CHECK_THROWS_AS(keep.load_state({{"list", zeros({4})}}), Error);
  CHECK_THROWS_AS(keep.load_state({{"list", bytes_of(std::string(300, 8))}}), Error);  // lists in lists
  std::string deep;  // each the only element of the one around it
  for (int i = 0; i < 200; ++i) deep += std::string("\x08\x01\0\0\0\0\0\0\0", 9);
  CHECK_THROWS_AS(keep.load_state({{"list", bytes_of(deep + std::string(1, '\0'))}}), Error);
  keep.load_state(good);
  CHECK(list == std::vector<std::string>{"one", "two"});
}

TEST_CASE("a Keep is known while it lives, in the order of construction") {
  const auto of_program = [] { return Stateful::made_by(nullptr); };
  const size_t before = of_program().size();
  int64_t x = 0;
  auto first = std::make_unique<Keep>("x", x), second = std::make_unique<Keep>("x", x),
       third = std::make_unique<Keep>("x", x);
  REQUIRE(of_program().size() == before + 3);
  CHECK(of_program()[before + 1] == second.get());
  second.reset();
  CHECK(of_program()[before + 1] == third.get());
  first.reset(), third.reset();
  CHECK(of_program().size() == before);
  CHECK(Stateful::made_by(&x).empty());
  CHECK(Keep().state_name() == "Keep");
}
