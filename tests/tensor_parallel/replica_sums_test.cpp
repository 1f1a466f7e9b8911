// Replicas of pipelines sum their gradients: when, of which rows, and after a step that failed in one of
// them.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "collective/engine.h"
#include "parallel/pipeline/pipelines.h"
#include "parallel/tensor/linear.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<Place> places(int workers) {
  std::vector<Place> all;
  for (int i = 1; i <= workers; ++i) all.emplace_back(i);
  return all;
}

// A stage that can be held, and fails then.
struct Held : nn::ModuleActor<nn::Linear> {
  explicit Held(Mesh) : ModuleActor(4, 4) {}
  Task<Tensor> forward(Tensor x) {
    if (holds && --left == 0) {
      const Future<void> released = release.future();
      co_await released;
      holds = false;
      throw_error(ErrorKind::failed, "[held] out of luck");
    }
    co_return net(x);
  }
  Tensor loss(Tensor x, Tensor y) {
    ++losses;
    return ops::mse_loss(x, y);
  }
  int count() { return std::exchange(losses, 0); }
  void hold(int at) { holds = true, left = at, release = Promise<void>(); }
  void let_go() { release.set(); }
  int losses = 0, left = 0;
  bool holds = false;
  Promise<void> release;
  static constexpr auto remote =
      methods<&Held::forward, &Held::loss, &Held::count, &Held::hold, &Held::let_go>;
};

}  // namespace

TEST_CASE("a stage that fails when the same stage of another replica sums already leaves both in step") {
  const auto cluster = Cluster::in_process(5, hosting<Held>());
  const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 2}}, places(4));
  const auto model = parallel::spawn<Held>(cluster->here(), mesh);
  parallel::Pipelines train(cluster->here(), model,
                            parallel::stage<&Held::forward>().with_loss<&Held::loss>(), {.micro_batches = 2});
  Generator generator{7};
  const Value x(ops::randn({8, 4}, generator)), y(ops::randn({8, 4}, generator));
  const auto loss = [&] {
    autograd::Context context(*cluster);
    return train.step(x, y).loss;
  };
  const double before = loss();
  for (size_t rank : {3, 1}) {
    CAPTURE(rank);
    const RRef<Held> held = model.actors()[rank], other = model.actors()[rank == 3 ? 1 : 3];
    held.call<&Held::hold>(2).get();
    (void)other.call<&Held::count>().get();
    {
      autograd::Context context(*cluster);
      const auto step = train.step_async(x, y);
      for (int losses = 0; losses < 2; std::this_thread::yield()) losses += other.call<&Held::count>().get();
      held.call<&Held::let_go>().get();
      const auto error = error_of([&] { step.get(); });
      CHECK(error.kind() == ErrorKind::failed);
      CHECK_THAT(error.what(), Catch::Contains("out of luck"));
    }
    CHECK(loss() == before);
  }
}

TEST_CASE(
    "pipelines that are replicas by themselves learn from the mean of all rows, and may run on their own") {
  const auto cluster = Cluster::in_process(7, hosting<Held>());
  const auto spawn = [&](std::vector<Place> where) {
    return parallel::spawn<Held>(cluster->here(), Mesh(*cluster, {{"pp", 2}}, std::move(where))).actors();
  };
  const std::vector<std::vector<RRef<Held>>> towers{spawn({1, 2}), spawn({3, 4}), spawn({5, 6})};
  const std::vector<Group> replicas{Group({towers[0][0], towers[1][0]}), Group({towers[0][1], towers[1][1]})};
  std::deque<parallel::Pipeline> pipelines;
  for (size_t t = 0; t < 3; ++t)
    pipelines.emplace_back(
        cluster->here(),
        std::vector{parallel::stage<&Held::forward>(towers[t][0]),
                    parallel::stage<&Held::forward>(towers[t][1]).with_loss<&Held::loss>()},
        parallel::PipelineOptions{.micro_batches = 2, .replicas = t < 2 ? replicas : std::vector<Group>()});
  for (size_t s = 0; s < 2; ++s)
    nn::load_remote_state_dict(towers[2][s], nn::remote_state_dict(towers[0][s]).get()).get();
  std::vector<AnyRef> both{towers[0][0], towers[0][1], towers[1][0], towers[1][1]},
      one{towers[2][0], towers[2][1]};
  optim::Distributed<optim::SGD> of_both(both, {.lr = 0.5}), of_one(one, {.lr = 0.5});
  Generator generator{7};
  const Tensor x = ops::randn({8, 4}, generator), y = ops::randn({8, 4}, generator);
  for (int step = 0; step < 3; ++step) {
    CAPTURE(step);
    (void)pipelines[step == 1].forward(Value(x));  // one of them counts more than the other
    double loss;
    {
      autograd::Context context(*cluster);
      const auto first = pipelines[0].step_async(Value(x.slice(0, 0, 6)), Value(y.slice(0, 0, 6))),
                 second = pipelines[1].step_async(Value(x.slice(0, 6, 8)), Value(y.slice(0, 6, 8)));
      loss = (6 * first.get().loss + 2 * second.get().loss) / 8;
      of_both.step(context);
    }
    autograd::Context context(*cluster);
    CHECK(loss == Approx(pipelines[2].step(Value(x), Value(y)).loss).epsilon(1e-5));
    of_one.step(context);
  }
}

namespace {

// The gradient goes on when as many bytes have been sent to the other replica.
struct WaitsForSums : autograd::Function<WaitsForSums> {
  struct Ctx : autograd::FunctionCtx {
    int64_t bytes = 0;
  };
  static Tensor forward(Ctx& ctx, Tensor x, int64_t bytes) {
    ctx.bytes = bytes;
    return x * 1;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    const auto& engine = internal::collective::GroupEngine::of(*frame().worker);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (engine.sent_bytes() < ctx.bytes && std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    if (ctx.bytes) came = engine.sent_bytes() >= ctx.bytes;
    return {grads[0], Tensor()};
  }
  static inline std::atomic<bool> came{false};
};

// Its layers behind the first fill a bucket, and the first waits for their sums in the last micro-batch. The
// last ones wait for ranks, if there are several.
struct LayersNet : nn::Module {
  static constexpr int64_t kWidth = 505, kBucket = kWidth * (kWidth + 1) * 4;
  explicit LayersNet(const Group& tp)
      : wide(tp, kWidth, 6 * static_cast<int64_t>(tp.size())),
        narrow(tp, 6 * static_cast<int64_t>(tp.size()), kWidth) {}
  void members(nn::Members& m) override {
    m("down", down), m("up", up), m("wide", wide), m("narrow", narrow);
  }
  nn::Linear down{kWidth, kWidth}, up{kWidth, kWidth};
  tp::ColumnLinear wide;
  tp::RowLinear narrow;
};
struct Layers : nn::ModuleActor<LayersNet> {
  explicit Layers(Mesh m) : ModuleActor(m["tp"]) {}
  Task<Tensor> forward(Tensor x) {
    const bool waits = waits_at > 0 && --waits_at == 0;
    x = net.up(WaitsForSums::apply(net.down(x), waits ? bytes : 0));
    const tp::Part part = net.narrow(ops::tanh(net.wide(x)));
    co_return co_await part;
  }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  void wait_at(int forward) {
    waits_at = forward;
    bytes = internal::collective::GroupEngine::of(*frame().worker).sent_bytes() + LayersNet::kBucket / 2;
  }
  int waits_at = 0;
  int64_t bytes = 0;
  static constexpr auto remote = methods<&Layers::forward, &Layers::loss, &Layers::wait_at>;
};

}  // namespace

TEST_CASE("gradients of a pipeline are summed over its replicas while the last micro-batch goes back") {
  for (const size_t ranks : {1, 2})
    for (const char* schedule : {"gpipe", "zb-h1"}) {
      CAPTURE(schedule, ranks);
      const int workers = 2 * static_cast<int>(ranks);
      const auto cluster = Cluster::in_process(workers + 1, hosting<Layers>());
      const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 1}, {"tp", ranks}}, places(workers));
      const auto model = parallel::spawn<Layers>(cluster->here(), mesh);
      parallel::Pipelines train(cluster->here(), model,
                                parallel::stage<&Layers::forward>().with_loss<&Layers::loss>(),
                                {.schedule = schedule, .micro_batches = 2});
      const Value x(ones({8, LayersNet::kWidth}));
      WaitsForSums::came = false;
      for (const bool waits : {false, true}) {  // the first step finds out in which order gradients come
        if (waits) model.actors()[0].call<&Layers::wait_at>(2).get();
        autograd::Context context(*cluster);
        train.step(x, x);
      }
      CHECK(WaitsForSums::came);
    }
}
