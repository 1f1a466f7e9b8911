// Tensors of GPUs between workers of one process: shared memory, device maps, and what is refused.
#include "tests/cuda_train/runs.h"
#include "tests/parallel/stages.h"
#include "tests/support/eventually.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Holder : Actor {
  Tensor keep(Tensor x) {
    kept = x;
    return x;
  }
  /// Of what it keeps: an actor without state_dict lets its memory be seen.
  int64_t address() { return reinterpret_cast<int64_t>(kept.address()); }
  void fill(double value) { kept.fill_(value); }
  Tensor get() { return kept; }
  std::string place(Tensor x) { return x.device().str(); }
  Tensor on(std::string device) { return full({2}, 3, {float32, Device(device)}); }
  Tensor tripled(Tensor x) { return x * 3; }
  Tensor kept;
  static constexpr auto remote = methods<&Holder::keep, &Holder::address, &Holder::fill, &Holder::get,
                                         &Holder::place, &Holder::on, &Holder::tripled>;
};

std::unique_ptr<Cluster> cluster_of(int workers, std::vector<DeviceMap> maps = {}) {
  return Cluster::in_process(workers, hosting<Holder, Block>(), {.device_maps = std::move(maps)});
}

#ifdef TROUPE_CUDA_SIM
// After the first one, which sets up.
template <class Step>
void waits_only_for_the_loss(const Step& step) {
  step();
  sim_cuda::reset_counters();
  Tensor loss;
  for (int i = 0; i < 3; ++i) loss = step();
  CHECK(sim_cuda::counters().launches > 0);
  CHECK(sim_cuda::counters().synchronizations == 0);
  CHECK(std::isfinite(loss.item()));
  CHECK(sim_cuda::counters().synchronizations == 1);
}
#endif

}  // namespace

TEST_CASE("a tensor of a GPU goes to another worker of the process without a copy, until one side writes") {
  if (!needs_gpus(1)) return;
  const std::vector<size_t> before = gpu_bytes();
  {
    const auto cluster = cluster_of(2);
    const auto holder = cluster->spawn<Holder>("w1");
    const NoGradGuard off;
    Tensor x = ones({1000}, {float32, "cuda:0"});
    const auto* const where = x.address();
    const Tensor back = holder.call<&Holder::keep>(x).get();
    CHECK(holder.call<&Holder::address>().get() == reinterpret_cast<int64_t>(where));
    CHECK(back.address() == where);
    holder.call<&Holder::fill>(2.0).get();
    CHECK(x.to_vector<float>() == std::vector<float>(1000, 1));
    CHECK(back.to_vector<float>() == std::vector<float>(1000, 1));
    x.fill_(3);
    CHECK(holder.call<&Holder::get>().get().to_vector<float>() == std::vector<float>(1000, 2));
    CHECK(back.to_vector<float>() == std::vector<float>(1000, 1));
    // A view travels alone.
    const Tensor middle = holder.call<&Holder::keep>(x.slice(0, 10, 20)).get();
    CHECK(middle.to_vector<float>() == std::vector<float>(10, 3));
    const Tensor bools = tensor({1, 0, 2}, float64).to("cuda:0") > 0.5;
    CHECK(holder.call<&Holder::keep>(bools).get().to_vector<int64_t>() == std::vector<int64_t>{1, 0, 1});
    CHECK(holder.call<&Holder::keep>(zeros({0, 3}, {float32, "cuda:0"})).get().device() == Device("cuda:0"));
  }
  CHECK(gpu_bytes() == before);
}

TEST_CASE("a device map takes tensors to other GPUs, and gradients and answers back") {
  if (!needs_gpus(4)) return;
  const std::vector<size_t> before = gpu_bytes();
  {
    const auto cluster = cluster_of(3, {{"w0", "w1", {{"cuda:0", "cuda:1"}, {"cuda:1", "cuda:0"}}},
                                        {"w2", "w0", {{"cuda:3", "cuda:0"}}}});
    const auto one = cluster->spawn<Holder>("w1"), two = cluster->spawn<Holder>("w2");
    Tensor x = full({2}, 2, {float32, "cuda:0"}).requires_grad_();
    CHECK(one.call<&Holder::place>(x.detach()).get() == "cuda:1");
    CHECK(two.call<&Holder::place>(x.detach()).get() == "cuda:3");
    CHECK(two.call<&Holder::place>(x.detach().to(cpu)).get() == "cpu");
    CHECK(one.call<&Holder::on>(std::string("cuda:0")).get().device().str() == "cuda:1");
    autograd::Context context(*cluster);
    const Tensor y = one.call<&Holder::tripled>(x).get(), z = two.call<&Holder::tripled>(y).get();
    CHECK(y.device().str() == "cuda:0");
    CHECK(z.device().str() == "cuda:0");
    const Tensors grads = context.grad({sum(z)}, {x});
    CHECK(grads[0].device().str() == "cuda:0");
    CHECK(grads[0].to_vector<float>() == std::vector<float>{9, 9});
  }
  CHECK(gpu_bytes() == before);
}

TEST_CASE("a device that the map of its pair lacks is refused before anything is sent") {
  if (!needs_gpus(3)) return;
  const auto cluster = cluster_of(2, {{"w0", "w1", {{"cuda:0", "cuda:1"}}}});
  const auto holder = cluster->spawn<Holder>("w1");
  const NoGradGuard off;
  const Tensor x = zeros({2}, {float32, "cuda:2"});
  CHECK_THAT(
      text_of([&] { holder.call<&Holder::keep>(x).get(); }),
      Catch::StartsWith("[wire] the device map from w0 to w1 has no cuda:2 (it has cuda:0 -> cuda:1): add "
                        "it, or send the tensor with .to(cpu)"));
  CHECK_THAT(
      text_of([&] { holder.call<&Holder::on>(std::string("cuda:0")).get(); }),
      Catch::StartsWith("[wire] the device map from w1 to w0 has no cuda:0 (it has cuda:1 -> cuda:0)"));
  CHECK(holder.call<&Holder::place>(zeros({2})).get() == "cpu");
}

TEST_CASE("a device map that cannot be is refused before a worker starts") {
  if (!needs_gpus(2)) return;
  const auto text = [](std::vector<DeviceMap> maps) {
    return text_of([&] { cluster_of(2, std::move(maps)); });
  };
  CHECK(text({{"w0", "w1", {{"cuda:0", "cuda:1"}, {"cuda:0", "cuda:0"}}}}) ==
        "[cluster] the device map from w0 to w1 has cuda:0 twice on its left: a device goes to one other");
  CHECK(
      text({{"w0", "w1", {{"cuda:0", "cuda:1"}, {"cuda:1", "cuda:1"}}}}) ==
      "[cluster] the device map from w0 to w1 has cuda:1 twice on its right: gradients would not find their "
      "way back");
  CHECK(text({{"w0", "w1", {{"cuda:0", "cpu"}}}}) ==
        "[cluster] the device map from w0 to w1 has cpu in it: tensors of the CPU arrive on the CPU");
  CHECK_THAT(
      text({{"w0", "w1", {{"cuda:77", "cuda:0"}}}}),
      Catch::StartsWith("[cluster] in the device map from w0 to w1: [device] there is no cuda:77: this "
                        "machine has "));
  CHECK_THAT(
      text({{"w0", "w1", {{"cuda:0", "cuda:77"}}}}),
      Catch::StartsWith("[cluster] in the device map from w1 to w0: [device] there is no cuda:77: this "
                        "machine has "));
  CHECK(text({{"w0", "w1", {}}}) == "[cluster] the device map from w0 to w1 is empty");
  CHECK(text({{"w0", "w1", {{"cuda:0", "cuda:1"}}}, {"w1", "w0", {{"cuda:1", "cuda:0"}}}}) ==
        "[cluster] two device maps between w0 and w1; one holds in both directions");
  CHECK(text({{"w0", "w0", {{"cuda:0", "cuda:1"}}}}) ==
        "[cluster] a device map from w0 to itself; tensors stay there where they are");
  CHECK(text({{"w0", "w7", {{"cuda:0", "cuda:1"}}}}) ==
        "[cluster] a device map names worker 'w7'; there are w0 to w1");
  CHECK_THAT(text({{"w0", "w1", {{"gpu", "cuda:0"}}}}),
             Catch::Contains("[device] 'gpu': this program was built for"));
}

TEST_CASE("tensors of two devices in one operator are refused, and both are named") {
  if (!needs_gpus(2)) return;
  const Tensor a = zeros({2}, {float32, "cuda:0"}), b = zeros({2}, {float32, "cuda:1"});
  CHECK(text_of([&] { (void)(a + b); }) == "[add] inputs are on different devices: cuda:0 and cuda:1");
  CHECK(text_of([&] { a.data<float>(); }) ==
        "[tensor] float32 [2] on cuda:0 has no elements that the host can read: copy it with .to(cpu)");
}

#ifdef TROUPE_CUDA_SIM
TEST_CASE("a steady step waits for a device where a value is read and nowhere else") {
  if (!needs_gpus(1)) return;
  for (const char* optimizer : {"sgd", "adamw"}) {
    Dense net(1);
    net.to("cuda:0");
    const auto updates = optim::make(optimizer, {{"lr", 0.01}}, net.parameters());
    const Tensor x = wave({8, kWidth}, 1).to("cuda:0"), y = wave({8, kWidth}, 2).to("cuda:0");
    const auto step = [&] {
      updates->zero_grad();
      const Tensor loss = mse_loss(net(x), y);
      autograd::backward(loss);
      updates->step();
      return loss;
    };
    waits_only_for_the_loss(step);
  }
}

TEST_CASE("a steady step over calls waits for a device only where the loss is read") {
  if (!needs_gpus(2)) return;
  const auto cluster = cluster_of(3);
  std::vector<RRef<Block>> blocks;
  for (int64_t i = 0; i < 2; ++i) {
    blocks.push_back(cluster->spawn<Block>(i + 1, i));
    nn::remote_to(blocks.back(), "cuda:" + std::to_string(i)).get();
  }
  optim::DistributedOptimizer updates({blocks.begin(), blocks.end()}, "adamw", {{"lr", 0.01}});
  const Tensor x = wave({8, kWidth}, 1).to("cuda:0"), y = wave({8, kWidth}, 2).to("cuda:1");
  const auto step = [&] {
    autograd::Context context(*cluster);
    const Tensor loss =
        blocks[1]
            .call<&Block::loss>(blocks[1].call<&Block::forward>(blocks[0].call<&Block::forward>(x)), y)
            .get();
    context.backward(loss);
    updates.step(context);
    return loss;
  };
  waits_only_for_the_loss(step);
}

TEST_CASE("memory that runs out in a method fails its call, with what was asked, used and there is") {
  if (!needs_gpus(1)) return;
  const auto cluster = cluster_of(2);
  const auto holder = cluster->spawn<Holder>("w1");
  const NoGradGuard off;
  const Tensor x = zeros({1000}, {float32, "cuda:0"});
  const size_t before = allocator_stats("cuda:0").in_use;
  (void)holder.call<&Holder::tripled>(x).get();
  REQUIRE(
      eventually([&] { return allocator_stats("cuda:0").in_use == before; }));  // the worker's handle, too
  sim_cuda::set_memory(1 << 10);
  release_cached_memory("cuda:0");
  CHECK_THAT(text_of([&] { holder.call<&Holder::tripled>(x).get(); }),
             Catch::Contains("out of memory on cuda:0: 4000 bytes asked for, ") &&
                 Catch::Contains(" used by this process, "));
  sim_cuda::set_memory(size_t{8} << 30);
  CHECK(holder.call<&Holder::tripled>(x).get().to_vector<float>()[0] == 0);
}
#endif
