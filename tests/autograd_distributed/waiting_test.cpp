// Steps whose gradients come later: functions whose backward() is a Task, rules that give a future, hooks
// that wait. (tests/sim/derivatives_test.cpp has random programs, and workers that die while they wait.)
#include <catch2/catch.hpp>

#include <deque>

#include "autograd/split_pass.h"
#include "autograd/waiting_step.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;

namespace {

// What the rules wait for: opened by the test, or never.
struct Gates {
  std::mutex mutex;
  std::map<int64_t, std::vector<Promise<void>>> closed;
  std::set<int64_t> open_ones;
  std::atomic<int> begun{0}, living{0};

  Future<void> wait(int64_t gate) {
    Promise<void> p;
    const Future<void> f = p.future();
    const std::lock_guard lock(mutex);
    if (open_ones.contains(gate))
      p.set();
    else
      closed[gate].push_back(std::move(p));
    return f;
  }
  void open(int64_t gate) {
    std::vector<Promise<void>> all;
    {
      const std::lock_guard lock(mutex);
      open_ones.insert(gate);
      all = std::move(closed[gate]);
    }
    for (const auto& p : all) p.set();
  }
  // How many wait there for something that somebody still wants.
  size_t waiting(int64_t gate) {
    const std::lock_guard lock(mutex);
    return static_cast<size_t>(
        std::count_if(closed[gate].begin(), closed[gate].end(), [](const auto& p) { return p.wanted(); }));
  }
  void reset() {
    const std::lock_guard lock(mutex);
    closed.clear(), open_ones.clear();
    begun = 0;
  }
} gates;

template <class F>
void until(const F& holds) {
  REQUIRE(testing::eventually(holds));
}

struct Living {
  Living() { ++gates.living; }
  Living(const Living&) = delete;
  ~Living() { --gates.living; }
};

constexpr int64_t kFails = -1;

// x times w, and its gradients when the gate is open.
struct Times : autograd::Function<Times> {
  struct Ctx : autograd::FunctionCtx {
    int64_t gate = 0;
  };
  static Tensor forward(Ctx& ctx, Tensor x, Tensor w, int64_t gate) {
    ctx.gate = gate;
    ctx.save_for_backward({x, w});
    return x * w;
  }
  static Task<Tensors> backward(Ctx& ctx, Tensors grads) {
    const Living living;
    ++gates.begun;
    if (ctx.gate == kFails) throw_error(ErrorKind::failed, "[times] out of luck");
    co_await gates.wait(ctx.gate);
    const Tensors& saved = ctx.saved_tensors();
    co_return {grads[0] * saved[1], grads[0] * saved[0], Tensor()};
  }
};

Tensor leaf(double v) { return tensor({v}, float64).requires_grad_(); }

struct Factor : Actor {
  explicit Factor(double start) : w(leaf(start)) {}
  Tensor times(Tensor x, int64_t gate) { return Times::apply(x, w, gate); }
  Tensor plain(Tensor x) { return x * w; }
  // Two results, of which callers may use one.
  Tensors both(Tensor x, int64_t gate) { return {x * w, Times::apply(x, w, gate)}; }
  Tensor gradient() { return autograd::context_gradient(w); }
  void set_inputs() { autograd::set_context_inputs({w}); }
  Task<double> start(RRef<Factor> next, int64_t gate) {
    autograd::Context context;
    const Tensor x = leaf(3), y = Times::apply(co_await next.call<&Factor::times>(x, gate), w, gate);
    co_await context.backward_async(y);
    co_return context.grad(x).item();
  }
  Tensor w;
  static constexpr auto remote = methods<&Factor::times, &Factor::plain, &Factor::both, &Factor::gradient,
                                         &Factor::set_inputs, &Factor::start>;
};

struct Once : autograd::Function<Once> {
  static constexpr bool once_differentiable = true;
  static Tensor forward(Ctx&, Tensor p) { return p * 3; }
  static Task<Tensor> backward(Ctx&, Tensors grads) {
    co_await gates.wait(1);
    co_return grads[0] * 3;
  }
};

double value(const Tensor& t) { return t.defined() ? t.item() : 0; }

}  // namespace

TEST_CASE("a rule that waits gives its gradients when it has them, in fast and in exact passes") {
  gates.reset();
  const bool exact = GENERATE(false, true), ready = GENERATE(false, true);
  auto cluster = Cluster::in_process(3, hosting<Factor>());
  auto a = cluster->spawn<Factor>("w1", 2.0), b = cluster->spawn<Factor>("w2", 5.0);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3), here = leaf(7);
    const Tensor h = a.call<&Factor::times>(x, 1).get();
    Tensor y = b.call<&Factor::times>(h, 1).get();
    if (exact) y = y + h;
    y = Times::apply(y, here, 1);
    if (ready) gates.open(1);
    const auto done = context.backward_async(y);
    if (!ready) {
      until([] { return gates.waiting(1) == 1; });  // the driver's
      CHECK_FALSE(done.is_ready());
      gates.open(1);
    }
    done.get();
    CHECK(value(context.grad(x)) == 7 * (10 + (exact ? 2 : 0)));
    CHECK(value(context.grad(here)) == 3 * (10 + (exact ? 2 : 0)));
    CHECK(value(a.call<&Factor::gradient>().get()) == 7 * (15 + (exact ? 3 : 0)));
    CHECK(value(b.call<&Factor::gradient>().get()) == 7 * 6);
    CHECK(gates.begun == 3);
    CHECK(cluster->metrics("w0")["reach_messages_sent"] == (exact ? 2 : 0));
    context.end().get();
  }
  CHECK(a.call<&Factor::start>(b, 1).get() ==
        10);  // a pass that starts in an actor, beside which that has others
  nothing_left(*cluster);
  until([] { return gates.living == 0; });
}

TEST_CASE("what does not lie behind it goes on meanwhile, and so do other passes over the same step") {
  gates.reset();
  auto cluster = Cluster::in_process(2, hosting<Factor>());
  auto a = cluster->spawn<Factor>("w1", 2.0), other = cluster->spawn<Factor>("w1", 3.0);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3);
    const Tensor y = a.call<&Factor::times>(x, 1).get() + other.call<&Factor::plain>(x).get();
    std::vector<Future<void>> passes;
    for (int i = 0; i < 3; ++i) passes.push_back(context.backward_async(y, {}, {.retain_graph = true}));
    until([] { return gates.waiting(1) == 3; });
    until([&] { return value(context.grad(x)) == 9; });  // three times by way of the other one
    CHECK(value(other.call<&Factor::gradient>().get()) == 9);
    CHECK(a.call<&Factor::plain>(x).get().item() == 6);  // the actor handles messages
    gates.open(1);
    for (const auto& pass : passes) pass.get();
    CHECK(value(context.grad(x)) == 15);
    CHECK(value(a.call<&Factor::gradient>().get()) == 9);
    CHECK(gates.begun == 3);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("it begins once in each pass also if no gradient comes to it, and if no input lies behind it") {
  gates.reset();
  gates.open(1);
  auto cluster = Cluster::in_process(3, hosting<Factor>());
  auto a = cluster->spawn<Factor>("w1", 2.0), b = cluster->spawn<Factor>("w2", 5.0);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3);
    const Tensors two = b.call<&Factor::both>(a.call<&Factor::times>(x, 1), 1).get();  // of which one is used
    context.backward(two[0], {}, {.retain_graph = true});
    CHECK(gates.begun.exchange(0) == 2);
    CHECK(value(context.grad(x)) == 10);
    CHECK(value(b.call<&Factor::gradient>().get()) == 6);
    // Neither leads to `y`.
    const Tensor y = leaf(1), z = two[0] * y;
    CHECK(context.grad({z}, {y}, {}, {.retain_graph = true})[0].item() == 30);
    CHECK(gates.begun.exchange(0) == 2);
    CHECK(value(context.grad(x)) == 10);
    b.call<&Factor::set_inputs>().get();
    context.backward(z, {}, {.retain_graph = true, .only_inputs = true});
    CHECK(gates.begun.exchange(0) == 2);
    CHECK(value(context.grad(x)) == 10);
    CHECK(value(b.call<&Factor::gradient>().get()) == 12);
    CHECK(context.grad({z}, {x})[0].item() == 10);
    CHECK(gates.begun.exchange(0) == 2);
    // No gradient leaves the driver at all.
    const Tensor unused = a.call<&Factor::times>(x, 1).get();
    struct Stops : autograd::Function<Stops> {
      static Tensor forward(Ctx&, Tensor p, Tensor) { return p * 1; }
      static Tensors backward(Ctx&, Tensors grads) { return {grads[0], Tensor()}; }
    };
    context.backward(Stops::apply(y, unused));
    CHECK(gates.begun == 1);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a rule that fails fails the pass, which leaves gradients as they were, and ends those that wait") {
  gates.reset();
  gates.open(1);
  const bool exact = GENERATE(false, true), recorded = GENERATE(false, true);
  auto cluster = Cluster::in_process(3, hosting<Factor>());
  auto a = cluster->spawn<Factor>("w1", 2.0), b = cluster->spawn<Factor>("w2", 5.0);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3);
    Tensor good = a.call<&Factor::times>(x, 1).get();
    if (exact) good = good + a.call<&Factor::times>(good, 1).get();
    context.backward(good, {}, {.retain_graph = true});
    const double before = value(context.grad(x));
    for (int i = 0; i < 20; ++i) {
      const Tensor never = Times::apply(a.call<&Factor::times>(x, 2).get(), leaf(1), 2);
      const Tensor y = good + never + b.call<&Factor::times>(good, kFails).get();
      const Error e = error_of(
          [&] { context.backward(y, {}, {.timeout = 0s, .retain_graph = true, .create_graph = recorded}); });
      CHECK_THAT(e.what(), Contains("[times] out of luck") && Contains("backward on w2 (Factor#"));
      CHECK(value(context.grad(x)) == before);
      until([] { return gates.living == 0; });
    }
    CHECK(gates.waiting(2) == 0);
    context.backward(good);
    CHECK(value(context.grad(x)) == 2 * before);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a pass that is given up, or whose context ends, ends the rules that wait, and says where") {
  gates.reset();
  auto cluster = Cluster::in_process(3, hosting<Factor>());
  auto a = cluster->spawn<Factor>("w1", 2.0), b = cluster->spawn<Factor>("w2", 5.0);
  const bool exact = GENERATE(false, true);
  const auto product = [&](const Tensor& x) {
    Tensor y = a.call<&Factor::times>(x, 1).get();
    if (exact) y = y + b.call<&Factor::plain>(y).get();
    return b.call<&Factor::plain>(y).get();
  };
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3);
    const Error e = error_of([&] { context.backward(product(x), {}, {.timeout = 50ms}); });
    CHECK(e.kind() == ErrorKind::deadline);
    CHECK_THAT(e.what(), Contains("it waited for: w1"));
    until([] { return gates.living == 0 && gates.waiting(1) == 0; });
    until([&] { return cluster->metrics("w0")["backward_passes"] == 0; });
  }
  {
    Future<void> done;
    {
      autograd::Context context(*cluster);
      const Tensor x = leaf(3);
      done = context.backward_async(Times::apply(product(x), leaf(2), 3));
      until([] { return gates.waiting(3) == 1; });
      gates.open(3);
      until([] { return gates.waiting(1) == 1; });
    }
    CHECK(error_of([&] { done.get(); }).kind() == ErrorKind::cancelled);
    until([] { return gates.living == 0 && gates.waiting(1) == 0; });
  }
  nothing_left(*cluster);
}

TEST_CASE("a cluster ends though a rule waits, in an actor and outside") {
  gates.reset();
  {
    auto cluster = Cluster::in_process(2, hosting<Factor>());
    auto a = cluster->spawn<Factor>("w1", 2.0);
    autograd::Context context(*cluster);
    const Tensor x = leaf(3);
    (void)context.backward_async(a.call<&Factor::times>(x, 1).get() + Times::apply(x, leaf(1), 2));
    until([] { return gates.waiting(1) == 1 && gates.waiting(2) == 1; });
  }
  until([] { return gates.living == 0; });
}

TEST_CASE("recorded passes go through it, unless it is once differentiable") {
  gates.reset();
  gates.open(1);
  auto cluster = Cluster::in_process(2, hosting<Factor>());
  auto a = cluster->spawn<Factor>("w1", 2.0);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3);
    const Tensor h = a.call<&Factor::times>(x, 1).get(), y = h * h;  // (2 x)^2
    const Tensor g = context.grad({y}, {x}, {}, {.create_graph = true})[0];
    CHECK(g.item() == 24);
    CHECK(context.grad({g}, {x}, {}, {.retain_graph = true})[0].item() == 8);
    context.backward(g);
    CHECK(value(a.call<&Factor::gradient>().get()) == 24);  // 4 w x
    const Tensor once = context.grad({Once::apply(x)}, {x}, {}, {.create_graph = true})[0];
    CHECK(once.item() == 3);
    CHECK_THAT(error_of([&] { context.grad({once}, {x}); }).what(),
               Contains("its gradient cannot be differentiated again: it is once_differentiable"));
    struct Wrong : autograd::Function<Wrong> {
      static Tensor forward(Ctx&, Tensor p) { return p * 3; }
      static Task<Tensors> backward(Ctx&, Tensors grads) {
        co_await gates.wait(1);
        co_return {grads[0], grads[0]};
      }
    };
    CHECK_THAT(error_of([&] { context.backward(Wrong::apply(x)); }).what(),
               Contains("[Wrong] backward() gave 2 gradients, expected one for each of the 1 arguments"));
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a local pass and one in two parts refuse a graph that waits before anything has run") {
  gates.reset();
  gates.open(1);
  int hooked = 0;
  const Tensor x = leaf(3), w = leaf(2), v = leaf(5);
  const Tensor before = x * v, y = Times::apply(before, w, 1) * v;
  autograd::register_hook(before, [&](const Tensor&) {
    ++hooked;
    return Tensor();
  }).keep();
  const auto refused = [&](const std::function<void()>& pass) {
    const Error e = error_of(pass);
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(),
               Contains("waits for others") && Contains("autograd::Context that it was recorded in"));
  };
  struct : internal::autograd::Sink {
    void accumulate(const Tensor&, const Tensor&) override { FAIL("something has run"); }
  } sink;
  refused([&] { y.backward(); });
  refused([&] { autograd::grad({y}, {x}); });
  refused([&] { internal::autograd::run({y.gradient_edge()}, {tensor({1.0}, float64)}, sink); });
  internal::autograd::SplitPass split({y}, {x});
  CHECK_FALSE(split.leaves_actor());
  CHECK(split.waits());
  refused([&] { split.inputs(); });
  CHECK_FALSE(v.grad().defined());
  CHECK(autograd::grad({y}, {v * 1}).size() == 1);  // of what nothing waits for
  CHECK(gates.begun == 0);
  CHECK(hooked == 0);
}

namespace {

// A rule that is no function.
class Doubled final : public internal::autograd::WaitingStep {
 public:
  explicit Doubled(const Tensor& x) { set_next({x.gradient_edge()}); }
  std::string name() const override { return "Doubled"; }
  Future<Tensors> begin(Tensors grads, uint64_t) override {
    const auto mode = grad_enabled();
    return gates.wait(1).then([grads, mode] {
      const GradMode as(mode);
      return Tensors{grads[0].defined() ? grads[0] * 2 : Tensor()};
    });
  }
};

Tensor doubled(const Tensor& x) {
  Tensor y = x.detach() * 2;
  y.set_grad_fn({make_ref<Doubled>(x), 0});
  return y;
}

// A replica: the gradients of `w` are summed with those of a partner, when it has them, while the pass runs.
struct Replica : Actor {
  Replica() {
    ready = autograd::register_ready_hook(
        {w, unused}, [this](size_t i, const std::shared_ptr<autograd::PassGradients>& pass) {
          const Tensor grad = i ? Tensor() : pass->total(w);
          told += std::to_string(i) + (grad.defined() ? ":" + std::to_string(int(grad.item())) + " " : ":- ");
          if (i == 1) return Future<void>();
          const Tensor mine = pass->take(w);
          return gates.wait(gate).then([this, mine, pass] {
            if (gate == 2) throw_error(ErrorKind::failed, "[replica] the partner has gone");
            pass->add(w, mine + 100);
            pass->add(piece, mine);
          });
        });
  }
  Tensor times(Tensor x) { return x * w; }
  void set_gate(int64_t g) { gate = g; }
  std::string take_told() { return std::exchange(told, ""); }
  Tensors gradients() { return {autograd::context_gradient(w), autograd::context_gradient(piece)}; }
  Tensor w = leaf(2), unused = leaf(1), piece = leaf(0);
  autograd::WatchHandle ready;
  int64_t gate = 1;
  std::string told;
  static constexpr auto remote =
      methods<&Replica::times, &Replica::set_gate, &Replica::take_told, &Replica::gradients>;
};

}  // namespace

TEST_CASE("a rule of the framework's own gives a future") {
  gates.reset();
  auto cluster = Cluster::in_process(1, hosting<Factor>());
  autograd::Context context(*cluster);
  Tensor x = leaf(3), y = x;
  for (int i = 0; i < 10; ++i) y = doubled(y);
  const auto done = context.backward_async(y);
  CHECK_FALSE(done.is_ready());
  gates.open(1);
  done.get();
  CHECK(value(context.grad(x)) == 1024);
}

TEST_CASE("ready hooks may wait, and move gradients within the pass") {
  gates.reset();
  const bool exact = GENERATE(false, true);
  auto cluster = Cluster::in_process(2, hosting<Replica>());
  auto a = cluster->spawn<Replica>("w1");
  const auto gradients = [&] {
    const Tensors got = a.call<&Replica::gradients>().get();
    return std::pair(value(got[0]), value(got[1]));
  };
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3);
    Tensor y = a.call<&Replica::times>(x).get();
    if (exact) y = y + a.call<&Replica::times>(x).get();
    const double g = exact ? 6 : 3;
    const auto done = context.backward_async(y, {}, {.retain_graph = true});
    until([] { return gates.waiting(1) == 1; });
    CHECK_FALSE(done.is_ready());
    CHECK(gradients() == std::pair(0.0, 0.0));  // it was taken
    gates.open(1);
    done.get();
    CHECK(gradients() == std::pair(g + 100, g));
    CHECK(a.call<&Replica::take_told>().get() == (exact ? "0:6 1:- " : "0:3 1:- "));
    // What other passes have brought stays; one that fails takes its own back.
    a.call<&Replica::set_gate>(2).get();
    gates.open(2);
    const Error e = error_of([&] { context.backward(y, {}, {.retain_graph = true}); });
    CHECK_THAT(e.what(), Contains("[replica] the partner has gone") && Contains("backward on w1 (Replica#"));
    CHECK(gradients() == std::pair(g + 100, g));
    a.call<&Replica::set_gate>(3).get();
    CHECK(error_of([&] { context.backward(y, {}, {.timeout = 50ms, .retain_graph = true}); }).kind() ==
          ErrorKind::deadline);
    until([&] { return gates.waiting(3) == 0; });
    until([&] { return cluster->metrics("w0")["backward_passes"] == 0; });
    CHECK(gradients() == std::pair(g + 100, g));
    a.call<&Replica::set_gate>(1).get();
    context.backward(y);
    CHECK(gradients() == std::pair(2 * (g + 100), 2 * g));
    context.end().get();
  }
  nothing_left(*cluster);

  const Tensor w = leaf(2);
  int told = 0;
  const auto handle =
      autograd::register_ready_hook({w}, [&](size_t, const std::shared_ptr<autograd::PassGradients>&) {
        ++told;
        return Future<void>();
      });
  CHECK_THAT(error_of([&] { (w * 2).backward(); }).what(),
             Contains("has a ready hook that may wait, which a local pass cannot do"));
  CHECK(told == 0);
  CHECK_FALSE(w.grad().defined());
}
