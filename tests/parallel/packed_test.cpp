// Compression without any cluster: texts, what comes back of what was packed, and error feedback.
#include "parallel/server/compression/packed.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/generator.h"
#include "ops/ops.h"
#include "parallel/server/row_optimizer.h"
#include "tests/support/error_of.h"
#include "tests/support/received.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

Tensor some(const Shape& shape, uint64_t seed, double scale = 1) {
  Generator random(seed);
  return ops::mul(ops::randn(shape, random), scale);
}
std::vector<Whole> wholes_of(const Tensors& tensors) {
  std::vector<Whole> out;
  for (const Tensor& t : tensors) out.push_back({compute_dtype(t.dtype()), t.shape()});
  return out;
}
Tensor through(const Tensor& t, const std::string& how, Tensors* residual = nullptr) {
  const Packed packed = pack({t}, Compression::parse(how), residual);
  CHECK(packed.bytes() == packed_bytes(Compression::parse(how), t.numel(), t.dtype()));
  return unpack(packed, wholes_of({t})).at(0);
}

}  // namespace

TEST_CASE("a compression is text, and other texts are refused with what was expected") {
  for (const std::string text : {"none", "fp16", "bf16", "topk(0.01)", "topk(1)", "1bit"})
    CHECK(Compression::parse(text).str() == text);
  CHECK(Compression::parse("topk(0.5)").fraction == 0.5);
  for (const std::string text :
       {"", "fp8", "fp16(2)", "topk", "topk()", "topk(0)", "topk(1.5)", "topk(-1)", "topk(nan)", "topk(0.1",
        "topk(0.1))", "topk(0.1, 2)", "1bit ", " 1bit", "always", "fp16 always"})
    CHECK(invalid_text([&] { (void)Compression::parse(text); }) ==
          "[compression] \"" + text +
              "\"; expected none, fp16, bf16, topk(fraction) with a fraction above 0 and at most 1, or "
              "1bit; between replicas also one of those that are registered here: powersgd");
}

TEST_CASE("fp16 and bf16 round each element once, and what does not fit travels as it is") {
  const Tensor x = some({33, 3}, 1);
  CHECK(bit_equal(through(x, "fp16"), x.to(float16).to(float32)));
  CHECK(bit_equal(through(x, "bf16"), x.to(bfloat16).to(float32)));
  CHECK(bit_equal(through(x.to(float64), "fp16"), x.to(float16).to(float64)));
  for (const double value : {1e5, double(INFINITY), std::nan("")}) {
    const Tensor wide = tensor({1, float(value), 3});
    const Packed packed = pack({wide, x}, Compression::parse("fp16"));
    CHECK(packed.forms == std::vector<int64_t>{0, 1});
    CHECK(bit_equal(unpack(packed, wholes_of({wide, x}))[0], wide));
  }
  const Tensor half = x.to(bfloat16);  // cannot become smaller
  CHECK(pack({half}, Compression::parse("fp16")).parts[0].is_same(half));
}

TEST_CASE("neither compression nor a table's optimizer writes to what another process has") {
  const Tensor gradient = some({30, 50}, 1), table = some({20, 50}, 2), ids = tensor({3, 7, 3 + 8});
  for (const std::string how : {"fp16", "bf16", "topk(0.1)", "1bit"}) {
    Tensors left, left_here;
    for (int round = 0; round < 2; ++round)
      CHECK(bit_equal(through(received(gradient), how, &left), through(gradient, how, &left_here)));
  }
  const auto updated = [&](auto&& seen) {
    const Tensor t = seen(table);
    RowOptimizer optimizer("adam");
    for (int round = 0; round < 2; ++round) optimizer.step(t, ids, seen(ops::slice(gradient, 0, 0, 3)), {});
    return t;
  };
  CHECK(bit_equal(updated(received), updated([](const Tensor& t) { return t.clone_data(); })));
}

TEST_CASE("top-k sends the largest elements exactly, of equal ones the first, and keeps the others") {
  const Tensor x = tensor({1, -5, 2, 0, 5, -2, 2, 0.5, 0, 0});
  const Packed packed = pack({x}, Compression::parse("topk(0.31)"));
  const auto list = [](const Tensor& t) { return t.to_vector<float>(); };
  CHECK(list(unpack(packed, wholes_of({x}))[0]) == std::vector<float>{0, -5, 2, 0, 5, -2, 0, 0, 0, 0});
  for (const auto& [n, fraction] :
       {std::pair<int64_t, double>{1000, 0.01}, {1000, 0.2}, {777, 0.0001}, {4099, 0.1}}) {
    for (const DType dtype : {float32, float64}) {
      const Tensor t = some({n}, 3).to(dtype);
      Tensors residual;
      const Tensor sent = through(t, "topk(" + std::to_string(fraction) + ")", &residual);
      auto sizes = t.abs().to_vector<double>();
      std::sort(sizes.rbegin(), sizes.rend());
      const auto k = static_cast<size_t>(std::ceil(fraction * double(n)));
      const auto a = t.to_vector<double>(), b = sent.to_vector<double>(),
                 rest = residual[0].to_vector<double>();
      size_t count = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        const bool in = std::abs(a[i]) >= sizes[k - 1];
        count += in;
        REQUIRE(b[i] == (in ? a[i] : 0));
        REQUIRE(rest[i] == (in ? 0 : a[i]));
      }
      CHECK(count == k);
    }
  }
}

TEST_CASE("1bit sends signs and the two means, which leave the least squared error that signs can") {
  const Tensor x = tensor({1, -2, 3, -4, 0, 8, -6, 4}, float32);
  std::vector<float> many;
  for (int i = 0; i < 20; ++i)
    for (const float v : x.to_vector<float>()) many.push_back(v);
  const Tensor t = tensor(many);
  const auto back = through(t, "1bit").to_vector<float>();
  for (size_t i = 0; i < many.size(); ++i) REQUIRE(back[i] == (many[i] >= 0 ? 16.f / 5 : -12.f / 3));
  const Tensor positive = some({100}, 2).abs();
  CHECK(through(positive, "1bit").to_vector<double>()[7] == Approx(positive.mean().item()));
}

TEST_CASE("what was sent and what is left are the sum of all gradients") {
  for (const std::string how : {"topk(0.05)", "1bit"})
    for (const DType dtype : {float32, float64}) {
      INFO(how << " of " << name(dtype));
      const double tolerance = dtype == float64 ? 1e-13 : 2e-5;
      const int64_t n = 515;
      Tensors residual;
      Tensor sum = zeros({5, 103}, dtype), sent = zeros({5, 103}, dtype);
      for (uint64_t step = 0; step < 40; ++step) {
        // Not contiguous.
        const Tensor gradient = some({103, 5}, step).to(dtype).transpose(0, 1);
        REQUIRE_FALSE(gradient.is_contiguous());
        sum = ops::add(sum, gradient);
        const Tensor left_before = residual.empty() ? Tensor() : residual[0].clone_data();
        const Packed packed = pack({gradient}, Compression::parse(how), &residual);
        REQUIRE(packed.bytes() == packed_bytes(Compression::parse(how), n, dtype));
        const Tensor part = unpack(packed, wholes_of({gradient}))[0];
        const Tensor owed = left_before.defined() ? ops::add(gradient, left_before) : gradient.clone_data();
        // Top-k moves elements and rounds nothing.
        if (how != "1bit") REQUIRE(bit_equal(ops::add(part, residual[0]), owed));
        sent = ops::add(sent, part);
        const double off = ops::sub(ops::add(sent, residual[0]), sum).abs().amax().item();
        REQUIRE(off <= tolerance * double(step + 1));
      }
      CHECK(residual[0].abs().amax().item() > 0.1);  // there is something to keep
      // Switched off, the next one brings all that is owed.
      const Tensor last = some({5, 103}, 99).to(dtype);
      const Packed plain = pack({last}, Compression(), &residual);
      CHECK(plain.forms.empty());
      CHECK_FALSE(residual[0].defined());
      const Tensor all = ops::add(sent, plain.parts[0]);
      CHECK(ops::sub(all, ops::add(sum, last)).abs().amax().item() <= tolerance * 41);
    }
}

TEST_CASE("tensors without elements, undefined ones and those that are not finite leave what is kept alone") {
  for (const std::string how : {"fp16", "bf16", "topk(0.1)", "1bit"}) {
    INFO(how);
    const Compression compression = Compression::parse(how);
    Tensors residual;
    const Tensor good = some({64}, 1), none = zeros({0, 3});
    (void)pack({good, none, good}, compression, compression.keeps_residual() ? &residual : nullptr);
    const Tensor kept = residual.empty() ? Tensor() : residual[0].clone_data();
    const Tensor bad = ones({64});
    bad.data<float>()[3] = std::nanf("");
    bad.data<float>()[5] = INFINITY;
    const Packed packed =
        pack({Tensor(), none, bad}, compression, compression.keeps_residual() ? &residual : nullptr);
    const Tensors back = unpack(packed, wholes_of({good, none, good}));
    CHECK_FALSE(back[0].defined());
    CHECK(back[1].shape() == Shape{0, 3});
    CHECK(bit_equal(back[2], bad));
    if (compression.keeps_residual()) {
      CHECK(bit_equal(residual[0], kept));
      CHECK(bit_equal(residual[2], kept));
    }
  }
}

TEST_CASE("what cannot have been packed is refused by its number") {
  const Tensor x = some({100}, 1);
  const std::vector<Whole> wholes{{float32, {100}}};
  const auto said = [&](Packed packed) {
    return invalid_text([&] { (void)unpack(std::move(packed), wholes); });
  };
  const Packed top = pack({x}, Compression::parse("topk(0.1)")),
               signs = pack({x}, Compression::parse("1bit")), half = pack({x}, Compression::parse("bf16"));
  CHECK(said({{x}, {7}}) == "[compression] tensor 0 of 1 does not unpack: there is no such form");
  CHECK_THAT(said({{x, x}, {0, 0}}), Catch::Contains("another number of tensors"));
  CHECK_THAT(said({{}, {1}}), Catch::Contains("a part is missing"));
  CHECK_THAT(said({{top.parts[0]}, {2}}), Catch::Contains("a part is missing"));
  CHECK_THAT(said({{signs.parts[0]}, {3}}), Catch::Contains("a part is missing"));
  CHECK_THAT(said({{x}, {1}}), Catch::Contains("expected bfloat16 or float16 of its shape"));
  CHECK_THAT(said({{half.parts[0].slice(0, 0, 99)}, {1}}), Catch::Contains("of its shape"));
  CHECK_THAT(said({{half.parts[0], x}, {1}}), Catch::Contains("there are more parts"));
  CHECK_THAT(said({{x, top.parts[1]}, {2}}), Catch::Contains("two places in each int64"));
  CHECK_THAT(said({{top.parts[0], Tensor()}, {2}}), Catch::Contains("a part is missing"));
  CHECK_THAT(said({{top.parts[0], top.parts[1].to(float64)}, {2}}), Catch::Contains("elements of its dtype"));
  CHECK_THAT(said({{signs.parts[0].slice(0, 0, 1), signs.parts[1]}, {3}}),
             Catch::Contains("a sign for each"));
  CHECK_THAT(said({{signs.parts[0], x}, {3}}), Catch::Contains("expected two means"));
  for (const int64_t places : {int64_t{100}, int64_t{-1}, int64_t{5} << 32 | 5, int64_t{4} << 32 | 5})
    CHECK_THAT(said({{tensor({places}, int64), x.slice(0, 0, 2)}, {2}}),
               Catch::Contains("places out of range or order"));
}
