// Hooks after accumulation, and hooks that tell when gradients are final, in local passes.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using testing::error_of;

namespace {

Tensor leaf(double v) {
  Tensor t = full({1}, v);
  t.requires_grad_();
  return t;
}

}  // namespace

TEST_CASE("a hook after accumulation sees what .grad has, once per pass, and not in passes elsewhere") {
  const Tensor w = leaf(3), other = leaf(1);
  std::vector<double> seen;
  auto handle = autograd::register_post_accumulate_grad_hook(w, [&](const Tensor& grad) {
    CHECK(w.grad().item() == grad.item());
    seen.push_back(grad.item());
  });
  const auto loss = [&] { return ops::add(ops::mul(w, w), w).sum(); };
  autograd::backward(loss());
  CHECK(seen == std::vector<double>{7});
  autograd::backward(loss());
  CHECK(seen == std::vector<double>{7, 14});
  autograd::backward(ops::mul(other, other).sum());
  (void)autograd::grad({loss()}, {w});  // touches no .grad
  CHECK(seen.size() == 2);
  handle.remove();
  autograd::backward(loss());
  CHECK(seen.size() == 2);
}

TEST_CASE("parameters are told ready once per pass: as soon as nothing more can come, the rest at the end") {
  Tensors params;
  for (int i = 0; i < 5; ++i) params.push_back(leaf(i + 2));
  std::vector<std::pair<size_t, double>> told;  // -1: no gradient
  bool late = false;                            // node 0 of the graph has run
  auto handle = autograd::register_ready_hook(params, [&](size_t i, const Tensor& grad) {
    if (i == 3 || i == 1) CHECK_FALSE(late);
    told.emplace_back(i, grad.defined() ? grad.item() : -1);
  });
  Tensor first = ops::mul(params[0], params[2]);
  auto on_first = autograd::register_hook(first, [&](const Tensor&) {
    late = true;
    return Tensor();
  });
  Tensor y = ops::add(ops::mul(first, params[1]), params[1]);
  autograd::backward(ops::mul(y, params[3]).sum());
  REQUIRE(told.size() == 5);
  std::map<size_t, double> by(told.begin(), told.end());
  CHECK(by.size() == 5);
  CHECK(by[0] == 4 * 3 * 5);
  CHECK(by[1] == (8 + 1) * 5);
  CHECK(by[3] == 8 * 3 + 3);
  CHECK(by[4] == -1);
  CHECK(told.back().first == 4);  // certain only at the end
  told.clear();
  late = false;
  autograd::backward(params[4].sum());  // a pass that reaches one of them is one of theirs
  CHECK(told.size() == 5);
  CHECK(told.front() == std::pair<size_t, double>(4, 1));
  told.clear();
  const Tensor other = leaf(1);
  autograd::backward(other);
  CHECK(told.empty());
}

TEST_CASE("a hook that throws fails the pass, and bad registrations say what is wrong") {
  const Tensor w = leaf(3), plain = ones({1});
  {
    auto handle = autograd::register_ready_hook(
        {w}, [](size_t, const Tensor&) -> void { throw std::runtime_error("not now"); });
    CHECK_THROWS_WITH(autograd::backward(w), "not now");
  }
  autograd::backward(w);  // gone with its handle
  const auto says = [](const Error& e, const std::string& text) {
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains(text));
  };
  const auto none = [](size_t, const Tensor&) {};
  says(error_of([&] {
         (void)autograd::register_ready_hook({w, plain}, none);
       }),
       "[register_ready_hook] tensor 1 (float32 [1]) is no leaf that needs a gradient");
  says(error_of([&] { (void)autograd::register_ready_hook({}, none); }), "the list of tensors is empty");
  says(error_of([&] { (void)autograd::register_ready_hook({w, w}, none); }), "tensors 0 and 1 are the same");
  const std::function<void(size_t, const Tensor&)> empty;
  says(error_of([&] { (void)autograd::register_ready_hook({w}, empty); }), "the function is empty");
  says(error_of([&] { (void)autograd::register_post_accumulate_grad_hook(Tensor(), {}); }), "is empty");
  says(error_of([&] { (void)autograd::register_post_accumulate_grad_hook(Tensor(), [](const Tensor&) {}); }),
       "tensor 0 is undefined");
}

TEST_CASE("a hook may be removed, and a graph be run back, from inside a hook") {
  const Tensor w = leaf(3), v = leaf(5);
  int calls = 0;
  Tensor inner = ops::mul(v, v).sum();  // a pass records nothing
  autograd::WatchHandle handle;
  handle = autograd::register_post_accumulate_grad_hook(w, [&](const Tensor&) {
    ++calls;
    autograd::backward(inner);
    handle.remove();
  });
  autograd::backward(ops::mul(w, w).sum());
  autograd::backward(ops::mul(w, w).sum());
  CHECK(calls == 1);
  CHECK(v.grad().item() == 10);
  CHECK(w.grad().item() == 12);
}
