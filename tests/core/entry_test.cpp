// Entries: arguments by position and by name, defaults, conversions, and what is refused.
#include <catch2/catch.hpp>

#include "core/entry/maker.h"
#include "tests/support/error_of.h"

using namespace troupe;
using testing::error_of;

namespace {

const auto kScaled = maker<Value>(
    "scaled",
    [](int64_t x, double by, std::vector<double> plus, std::map<std::string, bool> how) {
      double sum = double(x) * by;
      for (const double p : plus) sum += p;
      return how["negative"] ? -sum : sum;
    },
    {{"x"}, {"by", "", Value(2.0)}, {"plus", "", Value(ValueList())}, {"how", "", Value(ValueMap())}},
    "x times by.");

std::string said(auto f) { return error_of(f).message(); }

double scaled(ValueList positional, ValueMap named = {}) {
  return std::get<double>(kScaled(std::move(positional), std::move(named)).v);
}

}  // namespace

TEST_CASE("entries take arguments by position, by name, and by default") {
  CHECK(kScaled.signature() ==
        "scaled(x: int64, by: double = 2, plus: list of double = [], how: map of bool = {}) -> double");
  CHECK(scaled({int64_t{3}}) == 6);
  CHECK(scaled({int64_t{3}, 4.0}) == 12);
  CHECK(scaled({int64_t{3}, int64_t{4}}) == 12);
  CHECK(scaled({}, {{"x", int64_t{3}}, {"by", 0.5}}) == 1.5);
  CHECK(scaled({int64_t{3}}, {{"plus", ValueList{1.0, int64_t{2}}}}) == 9);
  CHECK(scaled({int64_t{3}}, {{"how", ValueMap{{"negative", true}}}}) == -6);
}

TEST_CASE("numbers and empty tables become what the parameter wants") {
  CHECK(scaled({3.0}) == 6);
  CHECK(scaled({int64_t{3}, 2.0, ValueMap(), ValueList()}) == 6);
  CHECK(said([] { scaled({3.5}); }) == "scaled: x: expected int64, got double: " + kScaled.signature());
}

TEST_CASE("wrong arguments of an entry are refused with its signature") {
  const std::string end = ": " + kScaled.signature();
  CHECK(said([] { scaled({}); }) == "scaled needs \"x\"" + end);
  CHECK(said([] {
          scaled({1.0, 1.0, ValueList(), ValueMap(), 1.0});
        }) == "scaled takes 4 arguments, got 5" + end);
  CHECK(said([] { scaled({1.0}, {{"x", 1.0}}); }) == "scaled got x twice, by position and by name" + end);
  CHECK(said([] {
          scaled({1.0}, {{"pluss", 1.0}});
        }) == "scaled has no parameter \"pluss\"; did you mean \"plus\"?" + end);
  CHECK(said([] { scaled({true}); }) == "scaled: x: expected int64, got bool" + end);
}

TEST_CASE("an unknown entry is answered with the nearest name, or with all") {
  const std::vector<Entry> entries{{"linear", "", {}}, {"relu", "", {}}};
  CHECK(&find_entry(entries, "relu", "[nn] unknown module") == &entries[1]);
  CHECK(said([&] { find_entry(entries, "linaer", "[nn] unknown module"); }) ==
        "[nn] unknown module \"linaer\"; did you mean \"linear\"?");
  CHECK(said([&] { find_entry(entries, "conv\n", "[nn] unknown module"); }) ==
        "[nn] unknown module \"conv\\n\"; there are: linear, relu");
}
