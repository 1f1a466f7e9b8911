// What travels, there and back, between two processes' worth of workers.
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <set>
#include <unordered_map>
#include <variant>

#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;

namespace travels {

enum class Color : uint8_t { red, green };
enum Plain { one = 1, two };
struct Inner {
  int a = 0;
  std::vector<Color> colors;
  bool operator==(const Inner&) const = default;
};
struct Batch {
  std::optional<int> maybe;
  std::string text;
  Inner inner;
  std::array<float, 3> numbers{};
  std::variant<std::monostate, int64_t, std::string> one_of;
  std::map<int, std::string> names;
  bool operator==(const Batch&) const = default;
};
struct Nothing {
  bool operator==(const Nothing&) const = default;
};

// What a call brings goes back.
struct Echo : Actor {
  template <class T>
  T echo(T x) {
    return x;
  }
  std::pair<Batch, int64_t> batch(Batch b, WorkerId from) { return {b, int64_t{from}}; }
  static constexpr auto remote = methods<&Echo::batch>;
};

template <class T>
struct Typed : Actor {
  T echo(T x) { return x; }
  static constexpr auto remote = methods<&Typed::echo>;
};

template <class T>
void there_and_back(Cluster& cluster, const T& x) {
  for (const char* worker : {"w0", "w1"})
    CHECK((cluster.spawn<Typed<T>>(worker).template call<&Typed<T>::echo>(x).get() == x));
}

}  // namespace travels

using namespace travels;

TEST_CASE("numbers, texts, containers, enums and plain structs travel") {
  const auto cluster = Cluster::in_process(2);
  there_and_back(*cluster, true);
  there_and_back(*cluster, int8_t{-3});
  there_and_back(*cluster, ~uint64_t{0});
  there_and_back(*cluster, 0.1);
  there_and_back(*cluster, 0.1f);
  there_and_back(*cluster, std::string("a\0b", 3));
  there_and_back(*cluster, Bytes{std::byte{1}, std::byte{2}});
  there_and_back(*cluster, std::vector<bool>{true, false});
  there_and_back(*cluster, std::array<int, 2>{4, 5});
  there_and_back(*cluster, std::set<std::string>{"a", "b"});
  there_and_back(*cluster, std::map<std::string, int>{{"a", 1}});
  there_and_back(*cluster, std::map<int64_t, std::vector<int>>{{-1, {1}}, {2, {}}});
  there_and_back(*cluster, std::map<Color, bool>{{Color::green, true}});
  there_and_back(*cluster, std::unordered_map<double, std::string>{{0.5, "x"}});
  there_and_back(*cluster, std::optional<std::string>());
  there_and_back(*cluster, std::tuple<int, std::string, double>{1, "x", 2});
  there_and_back(*cluster, Color::green);
  there_and_back(*cluster, two);
  there_and_back(*cluster, std::chrono::milliseconds(1500));
  there_and_back(*cluster, std::variant<int64_t, std::string>{"x"});
  there_and_back(*cluster, Nothing{});
  there_and_back(*cluster, Inner{3, {Color::red, Color::green}});
  const Batch batch{4, "t", {5, {Color::green}}, {1, 2, 3}, "s", {{7, "seven"}}};
  there_and_back(*cluster, batch);
  there_and_back(*cluster, std::vector<Batch>{batch, {}});
  const auto echo = cluster->spawn<Echo>("w1");
  CHECK(echo.call<&Echo::batch>(batch, WorkerId{1}).get() == std::pair(batch, int64_t{1}));
}

TEST_CASE("what does not fit is refused with what was expected") {
  const auto cluster = Cluster::in_process(2);
  const auto text = [&](const AnyRef& to, ValueList args) {
    return std::string(error_of([&] { to.call("echo", std::move(args)).get(); }).what());
  };
  using Three = std::array<int, 3>;
  CHECK_THAT(text(cluster->spawn<Typed<Three>>("w1"), {Value(ValueList{Value(int64_t{1})})}),
             Catch::Contains("expected list of 3 times int32, got list of 1"));
  using Either = std::variant<int64_t, std::string>;
  CHECK_THAT(
      text(cluster->spawn<Typed<Either>>("w1"), {Value(ValueList{Value(int64_t{2}), Value(int64_t{2})})}),
      Catch::Contains("got alternative 2"));
  CHECK_THAT(
      text(cluster->spawn<Typed<Either>>("w1"), {Value(ValueList{Value(int64_t{1}), Value(int64_t{2})})}),
      Catch::Contains("expected string, got int64"));
  CHECK_THAT(text(cluster->spawn<Typed<Color>>("w1"), {Value(int64_t{300})}),
             Catch::Contains("expected int8, got 300"));
  CHECK_THAT(text(cluster->spawn<Typed<Inner>>("w1"), {Value(ValueList{Value(int64_t{1})})}),
             Catch::Contains("takes 2 arguments (int32, list of enum of int8), got 1"));
}
