// Large results between processes of one host: those that nobody else has are made where the caller reads
// them, the others are copied.
#include "actors/cell/sole_result.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/two_workers.h"

using namespace troupe;
using internal::actors::SoleResult;

namespace {

constexpr int64_t kNumbers = 1 << 18;

struct Maker : Actor {
  Tensor make(double value, bool keep) {
    Tensor t = Tensor::full({kNumbers}, value);
    placed = t.storage()->borrowed();
    if (keep) kept = t;
    return t;
  }
  /// Another tensor of that size comes first.
  Tensor twice(double value) {
    const Tensor half = Tensor::full({kNumbers}, value / 2);
    Tensor t = add(half, half);
    placed = t.storage()->borrowed();
    half_placed = half.storage()->borrowed();
    return t;
  }
  bool was_placed() { return placed; }
  bool was_half_placed() { return half_placed; }
  void write(double value) { std::fill_n(kept.data<float>(), kNumbers, static_cast<float>(value)); }
  Tensor kept;
  bool placed = false, half_placed = false;
  static constexpr auto remote =
      methods<&Maker::make, &Maker::twice, &Maker::was_placed, &Maker::was_half_placed, &Maker::write>;
};

// A maker on another worker.
struct Two {
  Tensor make(double value, bool keep = false) {
    NoGradGuard guard;
    return maker.call<&Maker::make>(value, keep).get();
  }
  bool placed() { return maker.call<&Maker::was_placed>().get(); }
  // Makes tensors until one is made in shared memory: the offers have been answered, and the size is known.
  void warm() {
    for (int i = 0; !placed(); ++i) {
      REQUIRE(i < 1000);
      make(i);
    }
  }
  testing::TwoWorkers workers{hosting<Maker>()};
  RRef<Maker> maker = workers.spawn<Maker>();
};

bool all_are(const Tensor& t, double value) {
  const float* data = t.data<float>();
  return std::all_of(data, data + kNumbers, [&](float x) { return x == static_cast<float>(value); });
}

}  // namespace

TEST_CASE("a large result that nobody else has is made where the caller reads it") {
  Two two;
  two.warm();
  std::vector<Tensor> results;
  for (int i = 0; i < 10; ++i) {
    results.push_back(two.make(i));
    CHECK(two.placed());
  }
  for (int i = 0; i < 10; ++i) CHECK(all_are(results[static_cast<size_t>(i)], i));
  results.clear();
  CHECK(all_are(two.make(3.5), 3.5));
}

TEST_CASE("a result that its actor keeps is copied, and the actor may write to its own") {
  Two two;
  two.warm();
  const Tensor result = two.make(6, true);
  CHECK(two.placed());  // nobody could know
  two.maker.call<&Maker::write>(9).get();
  CHECK(all_are(result, 6));
  const Tensor next = two.make(7);
  CHECK_FALSE(two.placed());  // the guess was wrong
  two.maker.call<&Maker::write>(10).get();
  CHECK(all_are(next, 7));
  CHECK(all_are(result, 6));
}

TEST_CASE("a result that stays with its worker is not made in shared memory") {
  Two two;
  two.warm();
  NoGradGuard guard;
  const auto stays = two.maker.remote<&Maker::make>(5.0, false);
  CHECK(all_are(stays.to_here().get(), 5));
  CHECK_FALSE(two.placed());
  CHECK(all_are(two.make(6), 6));
  CHECK(two.placed());
}

TEST_CASE("where another tensor of the size comes first the result is copied, and no more is placed") {
  Two two;
  NoGradGuard guard;
  two.warm();  // of another method: what is known is known of one
  const auto twice = [&](double value) { return two.maker.call<&Maker::twice>(value).get(); };
  std::vector<Tensor> results;
  for (int i = 0; i < 10; ++i) results.push_back(twice(i));
  for (int i = 0; i < 10; ++i) CHECK(all_are(results[static_cast<size_t>(i)], i));
  CHECK_FALSE(two.placed());
  CHECK_FALSE(two.maker.call<&Maker::was_half_placed>().get());
}

TEST_CASE("what is known of a method's results") {
  SoleResult known;
  std::byte a{}, b{};
  CHECK(known.expected() == 0);
  known.note(nullptr, &a, 500000);
  CHECK(known.expected() == 500000);
  known.note(&a, &a, 500000);
  CHECK(known.expected() == 500000);
  known.note(nullptr, &a, 700000);  // of another size this time: nothing was placed
  CHECK(known.expected() == 700000);
  known.note(nullptr, nullptr, 0);
  CHECK(known.expected() == 0);
  known.note(nullptr, &a, 700000);
  known.note(&a, &b, 700000);
  CHECK(known.expected() == 0);
  known.note(nullptr, &b, 700000);
  CHECK(known.expected() == 0);
}
