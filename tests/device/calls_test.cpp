// Tensors of the null device in calls, backward passes, pipelines and servers.
#include "parallel/server/served_table.h"
#include "tests/parallel/stages.h"
#include "tests/support/null_device.h"
#include "tests/support/two_workers.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Half : nn::ModuleActor<Dense> {
  Half(int64_t number, std::string device) : ModuleActor(number) { net.to(Device(device)); }
  Tensor forward(Tensor x) { return net(x); }
  Tensor plain(Tensor x) { return net.linear(x); }
  Tensor loss(Tensor y, Tensor target) { return mse_loss(y, target.to(y.device())); }
  Tensor back(Tensor x) { return x.to("cpu"); }
  Tensor same(Tensor x) { return x; }
  Tensor sixth(Tensor x) { return x.data_on({kNull, 5}); }
  std::string place(Tensor x) { return x.device().str(); }
  static constexpr auto remote = methods<&Half::forward, &Half::plain, &Half::loss, &Half::back, &Half::sixth,
                                         &Half::place, &Half::same>;
};

struct Keeper : Actor {
  explicit Keeper(Tensor t) : kept(t) {}
  double sum() { return kept.to(cpu).sum().item(); }
  Tensor kept;
  static constexpr auto remote = methods<&Keeper::sum>;
};

}  // namespace

TEST_CASE("tensors of a device travel to the same device of another worker and back") {
  install_null_device();
  TwoWorkers two(hosting<Half>());
  {
    const NoGradGuard off;
    const RRef<Half> half = two.spawn<Half>(int64_t{1}, std::string("null:1"));
    const Tensor x = wave({4, kWidth}, 1), there = x.to(null1);
    const Tensor y = half.call<&Half::forward>(there).get();
    CHECK(y.device() == null1);
    Dense local(1);
    CHECK(bit_equal(y, local(x)));
    CHECK(half.call<&Half::place>(there).get() == "null:1");
    CHECK(half.call<&Half::back>(there).get().device() == cpu);
    const Tensor large = wave({1000, 1000}, 2);  // by shared memory
    CHECK(bit_equal(half.call<&Half::back>(large.to(null0)).get(), large));
    CHECK(bit_equal(half.call<&Half::back>(transpose(large, 0, 1).to(null0)).get(), transpose(large, 0, 1)));
    CHECK_THAT(text_of([&] { half.call<&Half::plain>(x).get(); }),
               Catch::Contains("inputs are on different devices: cpu and null:1"));
  }
}

TEST_CASE("a distributed backward pass goes through devices, in both modes") {
  install_null_device();
  for (const bool exact : {false, true}) {
    const auto cluster = Cluster::in_process(3, hosting<Half>());
    const auto a = cluster->spawn<Half>(1, int64_t{0}, std::string("null:0"));
    const auto b = cluster->spawn<Half>(2, int64_t{1}, std::string("null:1"));
    optim::Distributed<optim::AdamW> steps({a, b}, {.lr = 0.1});
    WholeModel whole(2);
    Tensors parameters;
    for (auto& layer : whole.layers)
      for (const Tensor& p : layer->parameters()) parameters.push_back(p);
    optim::AdamW local(parameters, {.lr = 0.1});
    const Tensor x = wave({8, kWidth}, 1), target = wave({8, kWidth}, 2);
    for (int i = 0; i < 3; ++i) {
      autograd::Context context(*cluster);
      const Tensor y = b(a(x.to(null0)).get().to(null1)).get();
      CHECK(y.device() == null1);
      const Tensor loss = mse_loss(y.to(cpu), target);
      if (exact) {  // a pass for given inputs is
        const Tensor input = x.detach().requires_grad_();
        const Tensor other = sum(square(b(a(input.to(null0)).get().to(null1)).get()));
        CHECK(context.grad({other}, {input})[0].device() == cpu);
      }
      context.backward(loss);
      steps.step(context);
      CHECK(loss.item() == whole.backward(x, target));
      local.step();
    }
    for (size_t k = 0; k < 2; ++k) {
      const auto got = nn::remote_state_dict(k == 0 ? a : b).get();
      for (const auto& [name, t] : whole.layers[k]->state_dict()) CHECK(bit_equal(got.at(name), t));
    }
    nothing_left(*cluster);
  }
}

TEST_CASE("a pipeline has a stage on the CPU and one on the null device") {
  install_null_device();
  const Tensor x = wave({8, kWidth}, 1), y = wave({8, kWidth}, 2);
  WholeModel whole(2);
  const double loss = whole.backward(x, y);
  Fixture f(2);
  nn::remote_to(f.blocks[1], "null:0").get();
  parallel::Pipeline pipeline(f.cluster->here(), f.stages(), {.schedule = "1f1b", .micro_batches = 4});
  std::vector<Tensors> grads;
  CHECK(f.step(pipeline, x, y, &grads) == Approx(loss).epsilon(1e-5));
  compare(grads, whole);
}

TEST_CASE("a server on the CPU serves trainers on devices") {
  install_null_device();
  const auto run = [](Device device) {
    const auto cluster = Cluster::in_process(2);
    nn::Linear net(kWidth, 2);
    net.load_state_dict({{"weight", wave({2, kWidth}, 1)}, {"bias", wave({2}, 2)}});
    net.to(device);
    const auto served = parallel::serve(cluster->here(), {"w1"}, net.parameters(),
                                        {.optimizer = "adam", .options = {{"lr", 0.1}}, .trainers = 1});
    parallel::Client client(served, {.name = "one"});
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) {
      const Tensors values = client.pull().get();
      CHECK(values[0].device() == cpu);
      {
        const NoGradGuard off;
        for (size_t k = 0; k < values.size(); ++k) net.parameters()[k].copy_(values[k]);
      }
      net.zero_grad();
      const Tensor loss = mean(square(net(wave({4, kWidth}, 3).to(device))));
      autograd::backward(loss);
      losses.push_back(loss.item());
      Tensors grads;
      for (const Tensor& p : net.parameters()) grads.push_back(p.grad());
      client.push(grads).get();
    }
    return losses;
  };
  const auto wanted = run(cpu);
  CHECK(wanted.front() > wanted.back());
  CHECK(run(null0) == wanted);
}

TEST_CASE(
    "a tensor for a device that the receiver lacks fails that call, in either direction, and no other") {
  install_null_device();
  TwoWorkers two(hosting<Half>());
  const NoGradGuard off;
  const RRef<Half> half = two.spawn<Half>(int64_t{1}, std::string("cpu"));
  const Tensor x = wave({2, kWidth}, 1), elsewhere = x.data_on({kNull, 5});  // null has two devices
  CHECK_THAT(text_of([&] { half.call<&Half::place>(elsewhere).get(); }),
             Catch::Contains(
                 "float32 [2, 6] was sent from null:5, which the receiver does not have (it has cpu, ") &&
                 Catch::Contains("null:0, null:1): send it with .to(cpu)"));
  CHECK_THAT(text_of([&] { half.call<&Half::sixth>(x).get(); }), Catch::Contains("was sent from null:5"));
  CHECK(half.call<&Half::place>(x).get() == "cpu");  // the connection is as it was
}

TEST_CASE("an actor whose arguments are for a device that is not there fails all calls with that error") {
  install_null_device();
  TwoWorkers two(hosting<Keeper>());
  const Tensor x = ones({2, 3});
  const RRef<Keeper> made = two.spawn<Keeper>(x.to(null1)),
                     not_made = two.spawn<Keeper>(x.data_on({kNull, 5}));
  for (int i = 0; i < 2; ++i)
    CHECK_THAT(text_of([&] { not_made.with_timeout(Duration(0)).call<&Keeper::sum>().get(); }),
               Catch::Contains("float32 [2, 3] was sent from null:5, which the receiver does not have"));
  CHECK(made.call<&Keeper::sum>().get() == 6);
}

TEST_CASE("gradients that the receiver has no memory for, or no device, end their pass with that error") {
  install_null_device();
  TwoWorkers two(hosting<Half>());
  const RRef<Half> half = two.spawn<Half>(int64_t{1}, std::string("null:1"));
  for (const bool exact : {false, true}) {
    std::optional<NullMemoryLimit> full;
    bool elsewhere = false;
    autograd::Context context(two.worker(0));
    const Tensor there = half.call<&Half::forward>(wave({64, kWidth}, 1).to(null1).requires_grad_()).get();
    const Tensor y = exact ? add(there, half.call<&Half::forward>(there).get()) : there;
    const auto hook = [&](const Tensor& grad) {  // after it the message leaves
      if (elsewhere) return grad.data_on({kNull, 5});
      Tensor own = grad.clone();  // sent as it is
      full.emplace(64);
      return own;
    };
    autograd::register_hook(there, hook).keep();
    const auto text = [&] {
      return text_of([&] { context.backward(sum(y), {}, {.timeout = Duration(0), .retain_graph = true}); });
    };
    CHECK_THAT(text(), Catch::Contains("[wire] float32 [64, 6] cannot be copied to null:1: ") &&
                           Catch::Contains("backward on w1"));
    full.reset();
    elsewhere = true;
    CHECK_THAT(text(), Catch::Contains("float32 [64, 6] was sent from null:5, which the receiver does not"));
    context.end().get();
  }
}

TEST_CASE("a device map takes tensors to another device of the receiver, and answers back") {
  install_null_device();
  TwoWorkers two(hosting<Half>(), internal::net::DeviceMap({{null0, null1}}, "w0 to w1"));
  const NoGradGuard off;
  const RRef<Half> half = two.spawn<Half>(int64_t{1}, std::string("null:1"));
  const Tensor x = wave({4, kWidth}, 1);
  CHECK(half.call<&Half::place>(x.to(null0)).get() == "null:1");
  const Tensor y = half.call<&Half::forward>(x.to(null0)).get();
  CHECK(y.device() == null0);
  Dense local(1);
  CHECK(bit_equal(y, local(x)));
  CHECK_THAT(
      text_of([&] { half.call<&Half::place>(x.to(null1)).get(); }),
      Catch::StartsWith("[wire] the device map from w0 to w1 has no null:1 (it has null:0 -> null:1)"));
}

TEST_CASE("with a device map a result that is an argument is placed as on the way through the caller") {
  install_null_device();
  const auto cluster =
      Cluster::in_process(3, hosting<Half>(), {.device_maps = {{"w0", "w1", {{"null:0", "null:1"}}}}});
  const NoGradGuard off;
  const auto a = cluster->spawn<Half>(1, int64_t{1}, std::string("null:1"));
  const auto b = cluster->spawn<Half>(2, int64_t{1}, std::string("null:0"));
  const auto c = cluster->spawn<Half>(1, int64_t{1}, std::string("null:1"));
  const Tensor x = wave({4, kWidth}, 1).to(null0);
  const auto kept = a(x);
  CHECK(b.call<&Half::place>(kept).get() == "null:0");
  CHECK(b.call<&Half::place>(a(x)).get() == "null:0");  // straight from w1 to w2 it would be on null:1
  CHECK(cluster->metrics("w1")["arguments_sent"] == 0);
  CHECK(c.call<&Half::place>(a(x)).get() == "null:1");  // within w1 there is no map
}

TEST_CASE("gradients that cannot be sent end their pass with that error") {
  install_null_device();
  TwoWorkers two(hosting<Half>(), internal::net::DeviceMap({{null0, null1}}, "w0 to w1"));
  const RRef<Half> half = two.spawn<Half>(int64_t{1}, std::string("null:1"));
  for (const bool exact : {false, true}) {
    autograd::Context context(two.worker(0));
    const Tensor x = wave({4, kWidth}, 1).to(null0).requires_grad_();
    Tensor y = half.call<&Half::forward>(x).get(), z = half.call<&Half::forward>(exact ? y : x).get();
    autograd::register_hook(y, [](const Tensor& grad) { return grad.data_on(null1); }).keep();
    const auto text = text_of([&] { context.backward(sum(y) + sum(z), {}, {.timeout = Duration(0)}); });
    CHECK_THAT(text, Catch::Contains("[wire] the device map from w0 to w1 has no null:1"));
    context.end().get();
  }
}

TEST_CASE("tensors of a device are shared between workers of a process until one side writes") {
  install_null_device();
  const auto cluster = Cluster::in_process(2, hosting<Half>());
  const auto half = cluster->spawn<Half>(1, int64_t{1}, std::string("null:1"));
  const NoGradGuard off;
  Tensor x = wave({1000, kWidth}, 1).to(null0);
  const Tensor y = half.call<&Half::same>(x).get();
  CHECK(y.address() == x.address());
  x.fill_(0);
  CHECK(y.address() != x.address());
  CHECK(bit_equal(y, wave({1000, kWidth}, 1)));
}
