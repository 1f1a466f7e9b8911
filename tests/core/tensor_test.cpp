// Tensors without operators: making them, views, element access, copies, errors.
#include "core/tensor/creation.h"

#include <catch2/catch.hpp>

#include "core/graph/node.h"
#include "core/tensor/elements.h"
#include "tests/support/built_for.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;
using Ints = std::vector<int64_t>;

namespace {

// 0, 1, 2, ... in the given shape.
Tensor counting(const Shape& shape, DType dtype = float32) {
  const Tensor t = empty(shape, int64), out = empty(shape, dtype);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<int64_t>()[i] = i;
  copy_elements(out, t);
  return out;
}

}  // namespace

TEST_CASE("a new tensor is contiguous, aligned, and has the asked type") {
  for (const DType t : {float32, float64, int64, boolean}) {
    const Tensor x = ones({2, 3}, t);
    CHECK(x.dtype() == t);
    CHECK(x.nbytes() == 6 * item_size(t));
    CHECK(x.strides() == Shape{3, 1});
    CHECK(x.is_contiguous());
    CHECK(x.device() == cpu);
    CHECK(reinterpret_cast<uintptr_t>(x.bytes()) % 64 == 0);
    CHECK(x.summary() == std::string(name(t)) + " [2, 3]");
    CHECK(x.to_vector<int64_t>() == Ints(6, 1));
    CHECK(zeros({4}, t).to_vector<int64_t>() == Ints(4, 0));
  }
  CHECK_FALSE(Tensor().defined());
  CHECK(Tensor().summary() == "undefined tensor");
}

TEST_CASE("values go in and come out in row-major order, converted") {
  const Tensor x = tensor({{1.5, -2, 3}, {4, 5, 6.75}}, float64);
  CHECK(x.dtype() == float64);
  CHECK(x.to_vector<float>() == std::vector<float>{1.5f, -2, 3, 4, 5, 6.75f});
  CHECK(x.to_vector<int64_t>() == Ints{1, -2, 3, 4, 5, 6});
  CHECK(tensor({true, false}).dtype() == boolean);
  CHECK(tensor({true, false, true}).to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(tensor({7, 8}).shape() == Shape{2});
  CHECK(tensor(std::vector<BFloat16>{BFloat16(2)}).dtype() == bfloat16);
  CHECK(invalid_text([] {
          tensor(std::vector<double>{1, 1e300});
        }) == "[tensor] 1e+300 is beyond what float32 holds; use another dtype");
  CHECK(invalid_text([] {
          tensor(std::vector<int32_t>{1, 300}, uint8);
        }) == "[tensor] 300 is beyond what uint8 holds; use another dtype");
  CHECK(invalid_text([] {
          zeros({1 << 30, 1 << 30, 1 << 30});
        }) == "[tensor] shape [1073741824, 1073741824, 1073741824] has more bytes than can be counted");
}

TEST_CASE("impossible shapes are refused, in whichever order their sizes come") {
  const int64_t huge = int64_t{1} << 40;
  CHECK(invalid_text([] { empty({3, -1}); }) == "[tensor] negative size in shape [3, -1]");
  CHECK(invalid_text([] { empty({0, -1}); }) == "[tensor] negative size in shape [0, -1]");
  for (const Shape& s : {Shape{huge, huge}, Shape{huge, huge, 0}, Shape{0, huge, huge}})
    CHECK(invalid_text([&] { empty(s); }) ==
          "[tensor] shape " + s.str() + " has more bytes than can be counted");
  CHECK(invalid_text([&] { empty({huge}, float64); }) ==
        "[storage] 8796093022208 bytes asked for; the limit is 1099511627776");
  CHECK(error_text(ErrorKind::unimplemented,
                   [] {
                     empty({1}, {float32, {Device::Kind{5}, 1}});
                   }) == "[device] no backend for device kind 5:1: this program was built for " +
                             testing::built_for() + " only");
}

TEST_CASE("a tensor may have no dimension, or no element") {
  const Tensor x = tensor(2.5);
  CHECK(x.dim() == 0);
  CHECK(x.numel() == 1);
  CHECK(x.item() == 2.5);
  CHECK(x.clone_data().item() == 2.5);
  fill_elements(x, 3);
  CHECK(x.item() == 3);
  CHECK(invalid_text([&] { x.size(0); }) == "[size] a 0-d tensor has no dimension 0");

  const Tensor none = empty({3, 0, 2});
  CHECK(none.numel() == 0);
  CHECK(none.nbytes() == 0);
  CHECK(none.to_vector<float>().empty());
  fill_elements(none, 1);
  copy_elements(none, empty({3, 0, 2}, float64));
  CHECK(bit_equal(none, none.clone_data()));
  const Tensor turned = none.alias({2, 0, 3}, {1, 2, 2}, 0);
  CHECK(turned.is_contiguous());
  CHECK(turned.clone_data().shape() == Shape{2, 0, 3});
}

TEST_CASE("sizes are asked for from either end") {
  const Tensor x = empty({2, 5});
  CHECK(x.size(0) == 2);
  CHECK(x.size(-1) == 5);
  CHECK(invalid_text([&] { x.size(2); }) == "[size] dimension 2 is out of range for shape [2, 5]");
}

TEST_CASE("elements come only in the tensor's own type, and item() only from one element") {
  const Tensor x = zeros({2}, int64);
  CHECK(invalid_text([&] { x.data<float>(); }) ==
        "[tensor] elements asked for as float32, but the tensor is int64 [2]");
  const Tensor none;
  CHECK(invalid_text([&] { none.data<float>(); }) == "[tensor] elements of an undefined tensor");
  CHECK(invalid_text([&] { x.item(); }) == "[item] needs a tensor of one element, got int64 [2]");
  CHECK(invalid_text([] { Tensor().item(); }) ==
        "[item] needs a tensor of one element, got undefined tensor");
  CHECK(ones({1, 1}, boolean).item() == 1);
}

TEST_CASE("an alias shares elements and version, at another geometry") {
  const Tensor x = counting({3, 4});
  const Tensor turned = x.alias({4, 3}, {1, 4}, 0), corner = x.alias({2, 2}, {4, 1}, 5);
  CHECK(turned.to_vector<int64_t>() == Ints{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK_FALSE(turned.is_contiguous());
  CHECK(corner.to_vector<int64_t>() == Ints{5, 6, 9, 10});
  CHECK(corner.storage_offset() == 5);
  CHECK(corner.storage() == x.storage());
  const uint32_t before = x.version();
  fill_elements(corner, -1);
  corner.bump_version("step");
  CHECK(x.to_vector<int64_t>() == Ints{0, 1, 2, 3, 4, -1, -1, 7, 8, -1, -1, 11});
  CHECK(x.version() == before + 1);
  CHECK(turned.version() == x.version());
  const Tensor backwards = x.alias({3}, {-4}, 8), repeated = x.alias({2, 3}, {0, 1}, 1);
  CHECK(backwards.to_vector<int64_t>() == Ints{8, 4, 0});
  CHECK(repeated.to_vector<int64_t>() == Ints{1, 2, 3, 1, 2, 3});
  CHECK(x.alias({1, 4}, {77, 1}, 4).is_contiguous());
}

TEST_CASE("a clone of a strided view is dense and independent") {
  const Tensor x = counting({2, 3, 4}, float64);
  const Tensor view = x.alias({4, 2, 2}, {1, 12, 8}, 0), copy = view.clone_data();
  CHECK(copy.is_contiguous());
  CHECK(copy.strides() == Shape{4, 2, 1});
  CHECK(copy.to_vector<int64_t>() == Ints{0, 8, 12, 20, 1, 9, 13, 21, 2, 10, 14, 22, 3, 11, 15, 23});
  CHECK(bit_equal(view, copy));
  fill_elements(copy, 0);
  CHECK(x.to_vector<int64_t>()[8] == 8);
  CHECK(x.contiguous_data().is_same(x));
  CHECK_FALSE(view.contiguous_data().is_same(view));
}

TEST_CASE("copy_elements converts types and goes from and to any strides") {
  const Tensor from = counting({3, 2}, int64), to = zeros({2, 3});
  copy_elements(to.alias({3, 2}, {1, 3}, 0), from);
  CHECK(to.to_vector<int64_t>() == Ints{0, 2, 4, 1, 3, 5});
  const Tensor flags = empty({3, 2}, boolean);
  copy_elements(flags, from);
  CHECK(flags.to_vector<int64_t>() == Ints{0, 1, 1, 1, 1, 1});
  CHECK(invalid_text([&] { copy_elements(to, from); }) ==
        "[copy_elements] shapes differ: [2, 3] from [3, 2]");
}

TEST_CASE("copy_elements between overlapping views reads all before it writes") {
  const Tensor x = counting({3, 3});
  copy_elements(x.alias({3, 3}, {1, 3}, 0), x);  // the dense side is the source
  CHECK(x.to_vector<int64_t>() == Ints{0, 3, 6, 1, 4, 7, 2, 5, 8});
  copy_elements(x, x.alias({3, 3}, {1, 3}, 0));
  CHECK(x.to_vector<int64_t>() == Ints{0, 1, 2, 3, 4, 5, 6, 7, 8});
  copy_elements(x.alias({8}, {1}, 1), x.alias({8}, {1}, 0));
  CHECK(x.to_vector<int64_t>() == Ints{0, 0, 1, 2, 3, 4, 5, 6, 7});
  copy_elements(x.alias({4}, {2}, 2), x.alias({4}, {2}, 0));
  CHECK(x.to_vector<int64_t>() == Ints{0, 0, 0, 2, 1, 4, 3, 6, 5});
}

TEST_CASE("bit_equal compares type, shape and every bit") {
  const Tensor x = tensor({1, 2}, float32);
  CHECK(bit_equal(x, tensor({1, 2}, float32)));
  CHECK_FALSE(bit_equal(x, tensor({1, 3}, float32)));
  CHECK_FALSE(bit_equal(x, tensor({1, 2}, float64)));
  CHECK_FALSE(bit_equal(x, tensor({{1, 2}}, float32)));
  CHECK_FALSE(bit_equal(tensor(0.0), tensor(-0.0)));
  CHECK(bit_equal(Tensor(), Tensor()));
  CHECK_FALSE(bit_equal(x, Tensor()));
}

TEST_CASE("only a floating leaf can be marked to require a gradient") {
  Tensor x = zeros({2}), counts = zeros({2}, int64);
  CHECK_FALSE(x.requires_grad());
  CHECK(x.requires_grad_().requires_grad());
  CHECK(x.is_leaf());
  CHECK_FALSE(x.detach().requires_grad());
  CHECK(x.detach().storage() == x.storage());
  CHECK_FALSE(x.requires_grad_(false).requires_grad());
  CHECK_FALSE(x.gradient_edge());
  CHECK(invalid_text([&] { counts.requires_grad_(); }) ==
        "[requires_grad] needs a floating dtype, got int64 [2]");
  x.requires_grad_();
  Tensor made = zeros({2});
  made.set_grad_fn(x.gradient_edge());
  CHECK(made.requires_grad());
  CHECK_FALSE(made.is_leaf());
  CHECK(invalid_text([&] { made.requires_grad_(); }) ==
        "[requires_grad] is for leaves; this tensor was made by Accumulate");
}
