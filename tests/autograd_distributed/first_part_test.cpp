// A pass in two parts, of a graph with steps that wait: the first part waits as a pass of the context.
#include <catch2/catch.hpp>
#include <map>

#include "autograd/distributed/backward_meeting.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

// What a rule waits for, of which there is one.
struct Gate {
  void open() { opened.set(); }
  bool wanted() const { return opened.wanted(); }
  Promise<void> opened;
  std::atomic<int> begun{0};
};

struct Times : autograd::Function<Times> {
  struct Ctx : autograd::FunctionCtx {
    Gate* gate = nullptr;
  };
  static Tensor forward(Ctx& ctx, Tensor x, Tensor w, Gate* gate) {
    ctx.gate = gate;
    ctx.save_for_backward({x, w});
    return x * w;
  }
  static Task<Tensors> backward(Ctx& ctx, Tensors grads) {
    const Future<void> opened = ctx.gate->opened.future();
    ++ctx.gate->begun;
    co_await opened;
    const Tensors& saved = ctx.saved_tensors();
    co_return {grads[0] * saved[1], grads[0] * saved[0], Tensor()};
  }
};

Tensor leaf(double v) { return tensor({v}, float64).requires_grad_(); }

template <class F>
void until(const F& holds) {
  REQUIRE(testing::eventually(holds));
}

}  // namespace

TEST_CASE("the first part of a pass waits, and leaves the gradients of parameters for the second") {
  Gate gate;
  struct Sums : internal::autograd::Sink {
    std::map<const TensorImpl*, double> of;
    void accumulate(const Tensor& leaf, const Tensor& grad) override { of[leaf.impl()] += grad.item(); }
  } sums;
  auto cluster = Cluster::in_process(1);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3), before = leaf(2), within = leaf(5), behind = leaf(7), apart = leaf(11);
    int told = 0;
    const auto made = [&] {
      const Tensor copy = behind * 1;
      autograd::register_hook(copy, [&](const Tensor&) {
        ++told;
        return Tensor();
      }).keep();
      return Tensors{Times::apply(x * before, within, &gate) * copy * within, apart * behind};
    };
    internal::autograd::SplitPass pass(made(), {x});
    const auto first = internal::autograd::first_part_meeting(pass, {}, 0);
    CHECK(error_of([&] { (void)pass.begin({}); }).kind() == ErrorKind::invalid);
    until([&] { return gate.begun == 1; });
    CHECK_FALSE(first.is_ready());
    gate.open();
    const Tensors got = first.get();
    REQUIRE(got.size() == 1);
    CHECK(got[0].item() == 2 * 5 * 7 * 5);
    CHECK(told == 0);
    for (const Tensor& t : {x, before, within, behind, apart}) CHECK_FALSE(context.grad(t).defined());
    pass.rest(sums);
    CHECK(told == 1);
    context.backward_async(made(), {}).get();
    CHECK(sums.of.size() == 4);
    for (const Tensor& t : {before, within, behind, apart})
      CHECK(sums.of.at(t.impl()) == context.grad(t).item());
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a first part that waits ends with its context") {
  Gate gate;
  auto cluster = Cluster::in_process(1);
  {
    auto context = std::make_unique<autograd::Context>(*cluster);
    const Tensor x = leaf(3), w = leaf(5);
    auto pass =
        std::make_unique<internal::autograd::SplitPass>(Tensors{Times::apply(x, w, &gate)}, Tensors{x});
    const auto first = internal::autograd::first_part_meeting(*pass, {}, 0);
    pass.reset();  // as a step that is given up lets go of it
    until([&] { return gate.begun == 1; });
    context.reset();
    until([&] { return !gate.wanted(); });
    CHECK(error_of([&] { (void)first.get(); }).kind() == ErrorKind::cancelled);
  }
  nothing_left(*cluster);
}
