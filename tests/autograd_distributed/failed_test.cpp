// A pass that fails takes back what it has added, everywhere, before its error is told.
#include <catch2/catch.hpp>

#include <thread>

#include "autograd/distributed/context_state.h"
#include "autograd/function.h"
#include "autograd/hooks.h"
#include "core/base/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using autograd::ContextState;
using autograd::Termination;
using testing::error_of;
using testing::nothing_left;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({1}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) {
    Tensor y = ops::mul(x, w);
    autograd::register_hook(y, [this](const Tensor&) -> Tensor {
      if (fail) throw std::runtime_error("bad gradient");
      return {};
    }).keep();
    return y;
  }
  void set_fail(bool on) { fail = on; }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  bool fail = false;
  static constexpr auto remote = methods<&Scale::forward, &Scale::set_fail, &Scale::gradient>;
};

Tensor leaf(float v) {
  Tensor t = tensor({v});
  t.requires_grad_();
  return t;
}
constexpr uint64_t pass(uint64_t worker, uint64_t count) { return worker << 40 | count; }

}  // namespace

TEST_CASE("fifty passes that fail leave no trace in the context, and good ones before and after add up") {
  const bool shared = GENERATE(false, true);
  auto cluster = Cluster::in_process(4, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), b = cluster->spawn<Scale>("w2", 3),
       bad = cluster->spawn<Scale>("w3", 5);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(7);
    Tensor y = b.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();
    Tensor z = bad.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();
    if (shared) y = ops::add(y, b.call<&Scale::forward>(y).get());  // makes passes exact
    const float scale = shared ? 1 + 3 : 1, extra = shared ? 2 * 7 * 3 : 0;
    const auto check = [&](float passes) {
      CHECK(context.grad(x).item() == passes * 6 * scale);
      CHECK(a.call<&Scale::gradient>().get().item() == passes * 7 * 3 * scale);
      CHECK(b.call<&Scale::gradient>().get().item() == passes * (7 * 2 * scale + extra));
      CHECK_FALSE(bad.call<&Scale::gradient>().get().defined());
    };
    context.backward(y, {}, {.retain_graph = true});
    check(1);
    bad.call<&Scale::set_fail>(true).get();
    for (int i = 0; i < 50; ++i) {
      const Error e = error_of([&] { context.backward({y, z, x}, {}, {.retain_graph = true}); });
      CHECK_THAT(e.what(), Catch::Contains("bad gradient") && Catch::Contains("backward on w3 ("));
      check(1);
    }
    for (int i = 2; i < 5; ++i) {
      context.backward(y, {}, {.retain_graph = true});
      check(static_cast<float>(i));
    }
    bad.call<&Scale::set_fail>(false).get();
    context.backward(z);
    CHECK(bad.call<&Scale::gradient>().get().item() == 14);
    context.end().get();
  }
  nothing_left(*cluster);
}

namespace {

struct Refuses : autograd::Function<Refuses> {
  static Tensor forward(Ctx&, Tensor x) { return ops::mul(x, 1); }
  static Tensors backward(Ctx&, Tensors) { throw std::runtime_error("bad gradient"); }
};

/// What fails when a gradient comes to it: three ways of it. Steps run in the reverse of the order in which
/// they are made, so what was received after it gets its gradient, and sends it on, before that.
Tensor refusing(int64_t how, const Tensor& x) {
  if (how == 0) return Refuses::apply(x);
  if (how == 1) {
    const Tensor y = ops::mul(x, 2);
    autograd::register_hook(y, [](const Tensor&) -> Tensor {
      throw std::runtime_error("bad gradient");
    }).keep();
    return y;
  }
  return ops::expand(x, {int64_t{1} << 52}).slice(0, 0, 1);  // of which the whole has room nowhere
}

struct Late : Actor {
  Task<Tensor> forward(int64_t how, Tensor x, RRef<Scale> next) {
    const Tensor early = refusing(how, x);
    co_return ops::add(early, co_await next.call<&Scale::forward>(x));
  }
  Task<void> back(int64_t how, RRef<Scale> next) {
    autograd::Context context;
    const Tensor x = leaf(7), early = refusing(how, x);
    const Tensor y = ops::add(early, co_await next.call<&Scale::forward>(x));
    co_await context.backward_async(y);
  }
  static constexpr auto remote = methods<&Late::forward, &Late::back>;
};

}  // namespace

TEST_CASE("a step that fails after its part has sent a gradient ends the pass at once with its error") {
  const int64_t how = GENERATE(0, 1, 2);
  const bool exact = GENERATE(false, true), recorded = GENERATE(false, true);
  auto cluster = Cluster::in_process(3, hosting<Scale, Late>());
  auto a = cluster->spawn<Scale>("w1", 2);
  auto late = cluster->spawn<Late>("w2");
  const autograd::BackwardOptions options{
      .timeout = std::chrono::seconds(0), .retain_graph = true, .create_graph = recorded};
  const auto fails = [&](autograd::Context& context, const Tensor& y) {
    const Error e = error_of([&] { context.backward(y, {}, options); });
    CHECK_THAT(e.what(), Catch::Contains(how == 2 ? "bytes asked for; the limit is" : "bad gradient"));
    CHECK_FALSE(a.call<&Scale::gradient>().get().defined());
    context.end().get();
  };
  {
    INFO("in the driver");
    autograd::Context context(*cluster);
    Tensor x = leaf(7);
    if (exact) x = a.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();
    const Tensor early = refusing(how, x);
    fails(context, ops::add(early, a.call<&Scale::forward>(x).get()));
  }
  {
    INFO("in an actor");
    autograd::Context context(*cluster);
    Tensor x = leaf(7);
    if (exact) x = a.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();
    fails(context, late.call<&Late::forward>(how, x, a).get());
  }
  if (!exact && !recorded) {
    INFO("in an actor that starts the pass");
    CHECK_THAT(error_of([&] { late.call<&Late::back>(how, a).get(); }).what(),
               Catch::Contains(how == 2 ? "bytes asked for; the limit is" : "bad gradient"));
  }
  nothing_left(*cluster);
}

TEST_CASE("an optimizer steps with nothing of a failed pass") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), bad = cluster->spawn<Scale>("w2", 3);
  bad.call<&Scale::set_fail>(true).get();
  autograd::Context context(*cluster);
  const Tensor x = leaf(7);
  Tensor y = a.call<&Scale::forward>(x).get(), z = bad.call<&Scale::forward>(x).get();
  CHECK_THROWS(context.backward({y, z}, {}));
  CHECK_FALSE(a.call<&Scale::gradient>().get().defined());
  CHECK_FALSE(context.grad(x).defined());
}

TEST_CASE("gradients of passes count unless they are dropped, in any order of messages") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    ContextState state;
    const Tensor x = leaf(0);
    // Passes of two originators: each adds its weight some times, some fail; the floors follow their ends.
    struct Pass {
      uint64_t number;
      double weight;
      int64_t adds;
      bool fails;
      double sum = 0;
    };
    std::vector<Pass> open;
    uint64_t next[3] = {1, 1, 1};
    double want = 0;
    for (int i = 0; i < 200; ++i) {
      if (open.empty() || random.below(4) == 0) {
        const uint64_t worker = 1 + random.below(2);
        open.push_back({pass(worker, next[worker]++), double(1 + random.below(9)), int64_t(random.below(4)),
                        random.below(3) == 0});
        continue;
      }
      const size_t at = random.below(open.size());
      Pass& p = open[at];
      if (p.adds-- > 0) {
        state.accumulate(p.number, x, full({1}, p.weight, float32));
        p.sum += p.weight;
        want += p.weight++;
        continue;
      }
      if (p.fails) {
        state.drop_pass(p.number);
        want -= p.sum;
        CHECK(error_of([&] { state.accumulate(p.number, x, ones({1})); }).kind() == ErrorKind::cancelled);
      }
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      const uint64_t worker = 1 + random.below(2);
      uint64_t floor = pass(worker, next[worker]);
      for (const Pass& o : open)
        if (o.number >> 40 == worker) floor = std::min(floor, o.number);
      state.commit(floor);
      const Tensor sum = state.gradient(x);
      REQUIRE((sum.defined() ? sum.item() : 0) == want);
    }
  }
}

TEST_CASE("a failed pass is drained when all that is under way was reported or lost") {
  const Error why(ErrorKind::failed, "first"), gone(ErrorKind::disconnected, "gone");
  Termination t({1, 0});
  CHECK_FALSE(t.drained());
  t.handled(1, {{2, 5}, {3, 6}, {4, 7}});
  t.fail(why);
  CHECK(t.over());
  CHECK_FALSE(t.drained());
  t.handled(2, {{8, 9}});
  t.lost(6, gone);
  CHECK(t.outstanding() == std::vector<WorkerId>{7, 9});
  t.handled(99, {});  // of somebody whose report is lost: nobody waits for it
  t.handled(8, {});
  CHECK_FALSE(t.drained());
  t.lost(std::vector<autograd::GradMessageId>{4, 77}, gone);
  CHECK(t.drained());
  CHECK(t.failure()->message() == "first");
  Termination other({1, 0});
  other.lost(0, gone);
  CHECK(other.drained());
  CHECK(other.failure()->message() == "gone");
}

TEST_CASE("two threads run backward in one context: their gradients add up") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), b = cluster->spawn<Scale>("w2", 3);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(7);
    constexpr int kEach = 100;
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&] {
        autograd::Context::Guard guard(context);
        for (int i = 0; i < kEach; ++i) try {
            context.backward(b.call<&Scale::forward>(a.call<&Scale::forward>(x)).get());
          } catch (const Error&) {
            ++failures;
          }
      });
    for (auto& t : threads) t.join();
    CHECK(failures == 0);
    CHECK(context.grad(x).item() == 2 * kEach * 6);
    CHECK(a.call<&Scale::gradient>().get().item() == 2 * kEach * 21);
    CHECK(b.call<&Scale::gradient>().get().item() == 2 * kEach * 14);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a thousand passes over one graph add up, and leave nothing") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), b = cluster->spawn<Scale>("w2", 3);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(7);
    Tensor y = b.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();
    for (int i = 1; i <= 1000; ++i) {
      context.backward(y, {}, {.retain_graph = true});
      if (i % 100 == 0) CHECK(a.call<&Scale::gradient>().get().item() == 21.0 * i);
    }
    CHECK(context.grad(x).item() == 6000);
    CHECK(b.call<&Scale::gradient>().get().item() == 14000);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a context that ends while a pass runs fails the pass, and nothing else") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), b = cluster->spawn<Scale>("w2", 3);
  for (int i = 0; i < 100; ++i) {
    Future<void> done;
    {
      autograd::Context context(*cluster);
      Tensor y = leaf(7);
      for (int k = 0; k < 4; ++k) y = b.call<&Scale::forward>(a.call<&Scale::forward>(y)).get();
      done = context.backward_async({y});
    }
    try {
      done.get();  // it may have been quicker
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::cancelled);
      CHECK_THAT(e.what(), Catch::Contains("the context ended") || Catch::Contains("has ended"));
    }
  }
  autograd::Context context(*cluster);
  const Tensor x = leaf(7);
  Tensor y = a.call<&Scale::forward>(x).get();
  auto hook = autograd::register_hook(x, [&](const Tensor&) {
    context.end().get();  // for certain while it runs
    return Tensor();
  });
  const Error ended = error_of([&] { context.backward(y); });
  CHECK(ended.kind() == ErrorKind::cancelled);
  CHECK_THAT(ended.what(), Catch::Contains("the context ended"));
  y = {};
  nothing_left(*cluster);
}
