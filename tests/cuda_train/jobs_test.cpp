// Jobs whose models lie on GPUs: snapshots share their memory while training goes on, or the host has them.
#include <functional>

#include "core/graph/copy_on_write.h"
#include "tests/cuda_train/runs.h"
#include "tests/support/folder.h"
#include "tests/support/stopped_run.h"
#include "troupe/checkpoint/snapshot_room.h"
#include "troupe/job/job.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;
using namespace troupe::testing;

namespace {

struct GpuHalf : nn::ModuleActor<nn::Linear> {
  explicit GpuHalf(int64_t width) : ModuleActor(width, width) {}
  Tensor forward(Tensor x) {
    ++calls;
    return tanh(net(x.to(net.weight.device()))) + seen * 0.01;
  }
  void on(std::string device) { seen = seen.to(Device(device)); }
  void see(Tensor x) { seen = seen * 0.5 + x.detach().to(seen.device()); }
  Tensor seen = zeros({4, 1});
  int64_t calls = 0;
  Keep keep{"seen", seen, "calls", calls};
  static constexpr auto remote = methods<&GpuHalf::forward, &GpuHalf::on, &GpuHalf::see>;
};

struct GpuEnd {
  std::vector<double> losses;
  std::map<std::string, Tensor> first, second;
};

constexpr int64_t kSteps = 10;

// `each`: before a step; true ends the loop.
GpuEnd gpu_run(const Checkpoints& checkpoints, const std::function<bool(int64_t)>& each = {},
               int64_t width = 64) {
  manual_seed(5);
  GpuEnd out;
  const auto cluster = Cluster::in_process(3, hosting<GpuHalf>(), {.checkpoints = checkpoints});
  const auto a = cluster->spawn<GpuHalf>("w1", width), b = cluster->spawn<GpuHalf>("w2", width);
  const std::string other = backend_of(gpu0).devices() > 1 ? "cuda:1" : "cuda:0";
  for (const auto& [actor, device] : {std::pair(a, std::string("cuda:0")), std::pair(b, other)}) {
    nn::remote_to(actor, device).get();
    actor.call<&GpuHalf::on>(device).get();
  }
  optim::Distributed<optim::Adam> optimizer({a, b}, {.lr = 0.01});
  Tensor kept = zeros({300}, {float32, "cuda:0"});  // of the driver
  Keep keep("kept", kept);
  Job job(*cluster);
  for (const int64_t step : job.steps(kSteps)) {
    if (each && each(step)) break;
    autograd::Context context(*cluster);
    const Tensor x = ops::rand({4, width});
    const Tensor h = a.call<&GpuHalf::forward>(x).get(), y = b.call<&GpuHalf::forward>(h).get();
    const Tensor loss = mse_loss(y, (x * 0.3).to(y.device()));
    context.backward(loss);
    optimizer.step(context);
    a.call<&GpuHalf::see>(x.slice(1, 0, 1)).get();
    kept.add_(loss.detach().to("cuda:0"));
    out.losses.push_back(loss.item() + kept.slice(0, 7, 8).item());
  }
  out.first = nn::remote_state_dict(a).get(), out.second = nn::remote_state_dict(b).get();
  return out;
}

void same_as(const GpuEnd& got, const GpuEnd& whole) {
  REQUIRE(got.losses.size() <= whole.losses.size());
  CHECK(got.losses == std::vector<double>(whole.losses.end() - std::ssize(got.losses), whole.losses.end()));
  for (const auto& [a, b] : {std::pair(&got.first, &whole.first), std::pair(&got.second, &whole.second)})
    for (const auto& [name, t] : *b) {
      INFO(name);
      CHECK(a->at(name).device() == t.device());
      CHECK(bit_equal(a->at(name), t));
    }
}

}  // namespace

TEST_CASE("a job on GPUs that is stopped goes on with the same bits, and checkpoints change nothing") {
  if (!needs_gpus(1)) return;
  const std::vector<size_t> before = gpu_bytes();
#ifdef TROUPE_CUDA_SIM
  const int schedules = 4;
#else
  const int schedules = 1;
#endif
  for (int seed = 0; seed < schedules; ++seed) {
#ifdef TROUPE_CUDA_SIM
    INFO("schedule " << seed);
    seed ? sim_cuda::schedule_by_seed(static_cast<uint64_t>(seed)) : sim_cuda::schedule_eagerly();
#endif
    const GpuEnd whole = gpu_run({});
    REQUIRE(whole.losses.size() == kSteps);
    const Folder folder;
    const Checkpoints all{(folder.path / "all").string(), false, 1, 2},
        first{(folder.path / "run").string(), false, 1, 2}, again{first.dir, true, 1, 2};
    same_as(gpu_run(all), whole);
    CHECK(testing::newest_step(all.dir) == kSteps);
    (void)gpu_run(first, [&](int64_t step) { return testing::has_stopped(first.dir, step, 4); });
    const int64_t from = testing::newest_step(first.dir);
    CHECK((from > 0 && from < kSteps));
    const GpuEnd resumed = gpu_run(again);
    CHECK(std::ssize(resumed.losses) == kSteps - from);
    same_as(resumed, whole);
#ifdef TROUPE_CUDA_SIM
    CHECK(sim_cuda::take_fault() == "");
    sim_cuda::schedule_eagerly();
#endif
  }
  CHECK(gpu_bytes() == before);
}

#ifdef TROUPE_CUDA_SIM
TEST_CASE("snapshots share what a GPU has room to copy, in all workers together, and the host has the rest") {
  if (!needs_gpus(2)) return;
  constexpr size_t kMiB = size_t{1} << 20;
  const auto state = [](Device device, double value) {
    internal::OwnedState out;
    out.model["w"] = internal::lazy_copy(full({int64_t(2 * kMiB)}, value, {float32, device}));
    out.rest["slot"] = internal::lazy_copy(full({int64_t(kMiB)}, value + 1, {float32, device}));
    out.rest["step"] = tensor({3}, int64);
    return out;
  };
  const auto holds = [](const internal::OwnedState& s, double value) {
    CHECK(bit_equal(s.model.at("w").to(cpu), full({int64_t(2 * kMiB)}, value)));
    CHECK(bit_equal(s.rest.at("slot").to(cpu), full({int64_t(kMiB)}, value + 1)));
    CHECK(s.rest.at("step").item<int64_t>() == 3);
  };
  release_cached_memory(gpu0), release_cached_memory(gpu1);
  const size_t before = allocator_stats(gpu0).in_use;
  sim_cuda::set_memory(before + 64 * kMiB);
  for (const size_t pinned : {SIZE_MAX, size_t{0}}) {
    release_cached_memory(gpu0);
    sim_cuda::set_pinned_memory(pinned);
    const auto first = std::make_unique<internal::SnapshotRoom>();
    auto a = state(gpu0, 1), b = state(gpu0, 2), c = state(gpu1, 3);
    auto d = state(gpu0, 4);  // 12 MiB each: 28 are left on gpu0, 52 on gpu1
    a = first->take(a), c = first->take(c);
    CHECK((a.model["w"].device() == gpu0 && a.rest["slot"].device() == gpu0));
    CHECK(c.model["w"].device() == gpu1);
    {
      internal::SnapshotRoom second;  // of another worker
      b = second.take(b);
      CHECK(b.model["w"].device() == gpu0);
      d = second.take(d);
      CHECK((d.model["w"].device().is_cpu() && d.rest["slot"].device().is_cpu()));
      CHECK(c.model["w"].device() == gpu1);
      holds(b, 2), holds(d, 4);
    }
    auto e = state(gpu0, 5);  // what the other one counted is free again, and d's memory
    e = internal::SnapshotRoom().take(e);
    CHECK(e.model["w"].device() == gpu0);
    holds(a, 1), holds(c, 3), holds(e, 5);
  }
  sim_cuda::set_pinned_memory(SIZE_MAX);
  sim_cuda::set_memory(size_t{8} << 30);
}

TEST_CASE("checkpoints do not take the memory that training needs") {
  if (!needs_gpus(1)) return;
  constexpr int64_t kWidth = 1000;  // 4 MB of weights, 12 with those of the optimizer
  const GpuEnd whole = gpu_run({}, {}, kWidth);
  release_cached_memory(gpu0), release_cached_memory(gpu1);
  const size_t before = std::max(allocator_stats(gpu0).in_use, allocator_stats(gpu1).in_use);
  sim_cuda::set_memory(before + (size_t{22} << 20));
  const Folder folder;
  same_as(gpu_run({(folder.path / "run").string(), false, 1, 2}, {}, kWidth), whole);
  CHECK(testing::newest_step((folder.path / "run").string()) == kSteps);
  sim_cuda::set_memory(size_t{8} << 30);
}
#endif
