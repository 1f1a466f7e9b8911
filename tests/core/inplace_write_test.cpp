// What is refused before elements are written in place.
#include "core/graph/inplace_write.h"
#include "core/tensor/creation.h"

#include <catch2/catch.hpp>
#include <functional>

#include "core/base/error.h"

using namespace troupe;

namespace {

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    return e.message();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a tensor whose elements repeat is not written in place") {
  const Tensor wide = tensor({{1}, {2}}, float32).alias({2, 3}, {1, 0}, 0);
  CHECK(refusal([&] { begin_write(wide, "step"); }) ==
        "[step] several elements of the tensor float32 [2, 3] with strides [1, 0] lie at one place in "
        "memory, as in an expanded view: clone() it first and write to the clone");
  begin_write(wide, "step", RepeatedElements::harmless);
  begin_write(wide.alias({1, 2}, {0, 1}, 0), "step");  // a stride of 0 over one element
}

TEST_CASE("an undefined tensor is not written in place") {
  CHECK(refusal([] { begin_write(Tensor(), "step"); }) == "[step] the tensor to write to is undefined");
  CHECK(refusal([] {
          const Tensor none;
          troupe::internal::begin_recorded_write(zeros({2}), "step", {&none});
        }) == "[step] got an undefined tensor");
}

TEST_CASE("an input that shares some elements with what is written is refused as in PyTorch") {
  const Tensor x = zeros({2, 2});
  const auto refused = [&](const Tensor& to, const Tensor& from) {
    return refusal([&] { troupe::internal::begin_recorded_write(to, "add_", {&from}); }) != "nothing";
  };
  CHECK(
      refusal([&] {
        const Tensor turned = x.alias({2, 2}, {1, 2}, 0);
        troupe::internal::begin_recorded_write(x, "add_", {&turned});
      }) ==
      "[add_] the tensor float32 [2, 2] shares some of its elements with an input, float32 [2, 2], at other "
      "places: clone() the input first");
  CHECK(refused(x.alias({3}, {1}, 0), x.alias({3}, {1}, 1)));
  CHECK_FALSE(refused(x, x));
  CHECK_FALSE(refused(x, x.alias({2, 2}, {2, 1}, 0)));
  CHECK_FALSE(refused(x.alias({2}, {1}, 0), x.alias({2}, {1}, 2)));  // side by side
  CHECK_FALSE(refused(x.alias({2}, {2}, 0), x.alias({2}, {2}, 1)));  // one between the other
}
