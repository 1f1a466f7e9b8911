// What a rank has of an operation: what is sent as it lies, and what is written where.
#include "collective/elements.h"

#include <catch2/catch.hpp>

#include <stdexcept>

#include "troupe/troupe.h"

using namespace troupe;
using internal::collective::Elements;

namespace {

constexpr size_t kMany = 100'000;  // of float32: large enough to be lent

Tensor counting(size_t from, size_t n) {
  return arange(static_cast<double>(from), static_cast<double>(from + n)).to(float32);
}
Tensor joined(const Tensors& parts) { return ops::cat(parts, 0); }

}  // namespace

TEST_CASE("parts of large tensors are what is there, and small neighbours are copied together") {
  Tensor large = counting(0, kMany), last = counting(kMany + 30, kMany);
  const float *const of_large = large.data<float>(), *const of_last = last.data<float>();
  Elements elements(float32);
  elements.add_given({0, kMany}, large);
  elements.add({kMany, 10}, counting(kMany, 10));
  elements.add({kMany + 10, 20}, counting(kMany + 10, 20));
  elements.add({kMany + 30, kMany}, std::move(last));
  const size_t all = 2 * kMany + 30;
  const Tensors parts = elements.parts({0, all});
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].data<float>() == of_large);
  CHECK(parts[1].numel() == 30);
  CHECK(parts[2].data<float>() == of_last);
  CHECK(joined(parts).equal(counting(0, all)));
  const Tensors middle = elements.parts({64, kMany});
  REQUIRE(middle.size() == 2);
  CHECK(middle[0].data<float>() == of_large + 64);
  CHECK(joined(middle).equal(counting(64, kMany)));
  CHECK(elements.parts({5, 10}).size() == 1);
  CHECK(elements.parts({all, 0})[0].numel() == 0);
}

TEST_CASE("what comes is written in place, or beside what was given, and is what is read then") {
  const Tensor given = counting(0, 100);
  Tensor own = counting(100, 100);
  const float* const of_own = own.data<float>();
  Elements elements(float32);
  elements.add_given({0, 100}, given);
  elements.add({100, 100}, std::move(own));
  const Tensor before = elements.read({50, 40});
  elements.write({50, 100}, {full({50}, -1.0), full({10}, -2.0), full({40}, -3.0)});
  CHECK(given.equal(counting(0, 100)));
  CHECK(before.equal(counting(50, 40)));
  CHECK(elements.read({0, 50}).equal(counting(0, 50)));
  CHECK(elements.read({60, 40}).equal(full({40}, -1.0)));
  CHECK(elements.read({50, 100}).equal(joined({full({50}, -1.0), full({10}, -2.0), full({40}, -3.0)})));
  CHECK_THROWS_AS(elements.read({40, 20}), std::logic_error);
  elements.write({0, 50}, {full({50}, -4.0)});
  CHECK(elements.read({40, 20}).equal(joined({full({10}, -4.0), full({10}, -1.0)})));
  const Tensors tensors = elements.tensors();
  CHECK(tensors[1].data<float>() == of_own);
  CHECK(tensors[0].equal(joined({full({50}, -4.0), full({50}, -1.0)})));
}

TEST_CASE("renewed elements leave what was there to whoever has it") {
  Tensor own = counting(0, 100);
  Elements elements(float32);
  elements.add({0, 100}, std::move(own));
  const Tensor sent = elements.read({0, 100});
  elements.renew();
  elements.rewrite({0, 100}, [](const std::byte* now, std::byte* to, size_t n, size_t at) {
    CHECK(at == 0);
    for (size_t i = 0; i < n; ++i)
      reinterpret_cast<float*>(to)[i] = reinterpret_cast<const float*>(now)[i] + 1;
  });
  CHECK(sent.equal(counting(0, 100)));
  CHECK(elements.read({0, 100}).equal(counting(1, 100)));
  elements.renew();
  CHECK(elements.tensors()[0].equal(counting(1, 100)));
}
