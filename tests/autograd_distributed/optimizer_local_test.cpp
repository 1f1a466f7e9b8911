// A distributed optimizer does what a local one does with all parameters: every optimizer, schedules,
// clipping.
#include <catch2/catch.hpp>

#include <cmath>

#include "core/memory/storage.h"
#include "tests/autograd_distributed/half.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

template <class O>
void as_local(typename O::Options options) {
  INFO(O::kName);
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  Whole whole;
  optim::Distributed<O> remote({halves.a, halves.b}, options);
  O local(whole.parameters(), options);
  for (int step = 0; step < 6; ++step) {
    autograd::Context context(*cluster);
    halves.backward(context, step);
    remote.step(context);
    whole.backward(step);
    local.step();
    CHECK(same_bits(halves.values(), whole.parameters()));
  }
}

}  // namespace

TEST_CASE("nine optimizers over two owners have the bits of a local run") {
  as_local<optim::Adagrad>({.lr = 0.05});
  as_local<optim::Adam>({.lr = 0.01, .amsgrad = true});
  as_local<optim::AdamW>({.lr = 0.05, .amsgrad = true});
  as_local<optim::SGD>({.lr = 0.05});
  as_local<optim::SGD>({.lr = 1e-3, .momentum = 1, .weight_decay = 1, .nesterov = true});
  as_local<optim::Adadelta>({.rho = 0.95});
  as_local<optim::RMSprop>({.lr = 0.05});
  as_local<optim::Adamax>({.lr = 0.05});
  as_local<optim::Rprop>({.lr = 0.05});
}

TEST_CASE("schedules act on a distributed optimizer as on a local one") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  Whole whole;
  const optim::SGD::Options options{.lr = 0.4, .momentum = 0.9};
  optim::Distributed<optim::SGD> remote({halves.a, halves.b}, options);
  optim::SGD local(whole.parameters(), options);
  const auto rate = optim::warm_up(3, optim::cosine(6, 0.01), 0.1);
  const auto momentum = optim::one_cycle_momentum(9);
  optim::Scheduler remote_rate(remote, rate), local_rate(local, rate);
  optim::Scheduler remote_momentum(remote, momentum, "momentum"), local_momentum(local, momentum, "momentum");
  optim::Plateau remote_plateau({.factor = 0.5, .patience = 0}),
      local_plateau({.factor = 0.5, .patience = 0});
  for (int step = 0; step < 12; ++step) {
    autograd::Context context(*cluster);
    halves.backward(context, step);
    remote.step(context);
    whole.backward(step);
    local.step();
    INFO("step " << step);
    CHECK(same_bits(halves.values(), whole.parameters()));
    if (step < 9) {
      remote_rate.step(), local_rate.step(), remote_momentum.step(), local_momentum.step();
    } else {
      CHECK(remote_plateau.step(remote, 1) == local_plateau.step(local, 1));
    }
    CHECK(remote.lr() == local.lr());
  }
  CHECK(remote.lr() == Approx(0.01 * 0.5 * 0.5));
  CHECK_THAT(error_of([&] { remote.set_lr(-1); }).what(), Catch::Contains("[sgd] option lr must be"));
  CHECK(remote.lr() == local.lr());
}

TEST_CASE("gradients are clipped by their norm over all workers, bit for bit as in one place") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  Whole whole;
  optim::Distributed<optim::SGD> remote({halves.a, halves.b}, {.lr = 0.1});
  const bool largest = GENERATE(false, true);
  for (const double limit : {0.01, 0.0, 1e6}) {
    INFO("limit " << limit << (largest ? " of the largest element" : ""));
    autograd::Context context(*cluster);
    halves.backward(context, 0);
    whole.backward(0);
    const double norm = remote.clip_grad_norm(context, limit, {.largest = largest});
    CHECK(norm == optim::clip_grad_norm_(whole.parameters(), limit, {.largest = largest}));
    CHECK(norm > 0.01);
    Tensors clipped = halves.a.call<&Half::gradients>().get(), wanted;
    for (const Tensor& g : halves.b.call<&Half::gradients>().get()) clipped.push_back(g);
    for (const Tensor& p : whole.parameters()) wanted.push_back(p.grad());
    CHECK(same_bits(clipped, wanted));
  }
}

TEST_CASE("one norm counts several optimizers and parameters here, bit for bit as in one place") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  Whole whole;
  const Tensor head = full({2}, 0.75).requires_grad_(), same_head = full({2}, 0.75).requires_grad_();
  optim::Distributed<optim::SGD> first({halves.a}, {.lr = 0.1}), second({halves.b}, {.lr = 0.2});
  const auto loss = [](const Tensor& y, const Tensor& by) { return ops::sum(ops::square(ops::mul(y, by))); };
  const bool largest = GENERATE(false, true);
  for (const double limit : {0.01, 0.0, 1e6}) {
    INFO("limit " << limit << (largest ? " of the largest element" : ""));
    Tensors all = whole.parameters();
    all.push_back(same_head);
    for (const Tensor& p : all) p.set_grad({});
    autograd::backward(loss(whole.b.forward(whole.a.forward(halves.input(0))), same_head));
    autograd::Context context(*cluster);
    context.backward(
        loss(halves.b.call<&Half::forward>(halves.a.call<&Half::forward>(halves.input(0))).get(), head));
    const double norm = optim::clip_grad_norm(context, {first, second, optim::gradients_of({head})}, limit,
                                              {.largest = largest});
    CHECK(norm == optim::clip_grad_norm_(all, limit, {.largest = largest}));
    CHECK(norm > 0.01);
    Tensors clipped = halves.a.call<&Half::gradients>().get(), wanted;
    for (const Tensor& g : halves.b.call<&Half::gradients>().get()) clipped.push_back(g);
    clipped.push_back(context.grad(head));
    for (const Tensor& p : all) wanted.push_back(p.grad());
    CHECK(same_bits(clipped, wanted));
  }
}

TEST_CASE("what a norm over several optimizers would count twice is refused") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  optim::Distributed<optim::SGD> both({halves.a, halves.b}), second({halves.b});
  const Tensor leaf = ones({2}).requires_grad_();
  autograd::Context context(*cluster);
  halves.backward(context, 0);
  const Tensors before = halves.a.call<&Half::gradients>().get();
  const auto refusal = [&](std::vector<optim::ContextGradients> all) {
    return error_of([&] { optim::clip_grad_norm(context, all, 1e-3); }).message();
  };
  CHECK_THAT(refusal({second, second}), Catch::Contains("Half#0:2 on w2 is there twice"));
  CHECK_THAT(refusal({both, second}), Catch::Contains("Half#0:2 on w2 is there twice"));
  CHECK_THAT(refusal({both, optim::gradients_of({leaf, leaf})}), Catch::Contains("the leaf float32 [2] at "));
  CHECK(same_bits(halves.a.call<&Half::gradients>().get(), before));
}

TEST_CASE("a norm that is no number clips nothing over workers, or is an error if asked for") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  optim::Distributed<optim::SGD> remote({halves.a, halves.b}, {.lr = 0.1});
  autograd::Context context(*cluster);
  const Tensor bad = full({4, TwoHalves::kMiddle}, std::nan(""));
  const Tensor y =
      ops::add(halves.b.call<&Half::forward>(bad).get(),
               halves.b.call<&Half::forward>(halves.a.call<&Half::forward>(halves.input(0))).get());
  context.backward(halves.loss_of(y));
  const Tensors before = halves.b.call<&Half::gradients>().get();
  CHECK(std::isnan(remote.clip_grad_norm(context, 1)));
  const Error e = error_of([&] { remote.clip_grad_norm(context, 1, {.error_if_nonfinite = true}); });
  CHECK(e.kind() == ErrorKind::failed);
  CHECK_THAT(e.what(), Catch::Contains("the norm of the gradients is"));
  CHECK(same_bits(halves.b.call<&Half::gradients>().get(), before));
  CHECK(error_of([&] { remote.clip_grad_norm(context, -1); }).kind() == ErrorKind::invalid);
}

namespace {

// A parameter of 4 MiB: a copy of its gradient would be seen in the allocator's counters.
struct Wide : Actor {
  static constexpr int64_t kSize = 1 << 20;
  Wide() : w(full({kSize}, 2.0).requires_grad_()) {}
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  /// Where the gradient of the context of the call lies.
  int64_t place() {
    const Tensor gradient = autograd::context_gradient(w);
    return reinterpret_cast<int64_t>(gradient.data<float>());
  }
  /// Where the gradient of the parameter lay when the backward pass made it.
  int64_t made_at() { return made; }
  void watch() {
    hook = autograd::register_hook(w, [this](const Tensor& g) {
      made = reinterpret_cast<int64_t>(g.data<float>());
      return Tensor();
    });
  }
  Tensors parameters() override { return {w}; }
  Tensor w;
  int64_t made = 0;
  autograd::HookHandle hook;
  static constexpr auto remote = methods<&Wide::forward, &Wide::place, &Wide::made_at, &Wide::watch>;
};

}  // namespace

TEST_CASE("a gradient stays where the backward pass made it: steps and clipping copy nothing") {
  auto cluster = Cluster::in_process(2, hosting<Wide>());
  auto a = cluster->spawn<Wide>("w1"), b = cluster->spawn<Wide>("w1");
  a.call<&Wide::watch>().get();
  optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 0.1, .momentum = 0.9});
  const Tensor x = ones({Wide::kSize});
  for (int step = 0; step < 3; ++step) {
    autograd::Context context(*cluster);
    context.backward(b.call<&Wide::forward>(a.call<&Wide::forward>(x)).get().sum());
    const int64_t place = a.call<&Wide::place>().get();
    CHECK(place == a.call<&Wide::made_at>().get());
    release_cached_memory();  // a copy would have to ask the system for 4 MiB
    const auto held = [] { return allocator_stats().in_use + allocator_stats().cached; };
    constexpr size_t kFew = 1 << 20;
    const size_t before = held();
    CHECK(optimizer.clip_grad_norm(context, 1) > 1);
    CHECK(a.call<&Wide::place>().get() == place);
    if (step > 0) {  // the first step makes the momentum's buffers
      optimizer.step(context);
      CHECK(held() < before + kFew);
    } else {
      CHECK(held() < before + kFew);
      optimizer.step(context);
      CHECK(held() > before + kFew);
    }
  }
}
