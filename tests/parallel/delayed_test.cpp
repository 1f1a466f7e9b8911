// Updates one step late: the weights of every step, exactly, and that steps do overlap.
#include "parallel/pipeline/delayed_updates.h"

#include "rref/ref_table.h"
#include "tests/parallel/stages.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

constexpr int kSteps = 6;

Tensor input(int step) { return wave({6, kWidth}, 1 + step); }
Tensor target(int step) { return wave({6, kWidth}, 50 - step); }

Tensors parameters(WholeModel& whole) {
  Tensors all;
  for (auto& layer : whole.layers)
    for (const Tensor& p : layer->parameters()) all.push_back(p);
  return all;
}

// The same in one process: the gradients of step t are those of the weights that the updates of the steps up
// to t - 2 made.
struct Late {
  WholeModel now;
  optim::Adam adam;
  std::vector<double> losses;
  explicit Late(int stages) : now(stages), adam(parameters(now), {.lr = 0.05}) {}
  void run(int steps) {
    std::vector<Tensors> gradients;  // of the steps whose update is to come
    const auto update = [&] {
      adam.step(gradients.front());
      gradients.erase(gradients.begin());
    };
    for (int t = 0; t < steps; ++t) {
      if (gradients.size() == 2) update();
      losses.push_back(now.backward(input(t), target(t)));
      gradients.emplace_back();
      for (const Tensor& p : parameters(now)) gradients.back().push_back(p.grad().clone_data());
    }
    while (!gradients.empty()) update();
  }
};

}  // namespace

TEST_CASE("updates one step late have the weights of the formula, under every schedule and checkpoint") {
  Late late(3);
  late.run(kSteps);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h2", "credits(5)"})
    for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::always})
      for (const bool loss_here : {false, true}) {
        INFO(schedule << ", checkpoint " << int(checkpoint) << ", loss at the caller " << loss_here);
        Fixture f(3);
        PipelineOptions options{.schedule = schedule, .micro_batches = 3, .checkpoint = checkpoint};
        if (loss_here)
          options.loss = [](const Value& out, const Value& wanted) {
            return mse_loss(*out.get_if<Tensor>(), *wanted.get_if<Tensor>());
          };
        Pipeline pipeline(f.cluster->here(), f.stages(!loss_here), options);
        std::vector<AnyRef> actors(f.blocks.begin(), f.blocks.end());
        optim::Distributed<optim::Adam> adam(actors, {.lr = 0.05});
        std::vector<Future<StepResult>> results;
        {
          DelayedUpdates train(f.cluster->here(), pipeline, adam);
          for (int t = 0; t < kSteps; ++t) results.push_back(train.step(Value(input(t)), Value(target(t))));
          train.finish();
        }
        for (int t = 0; t < kSteps; ++t)
          CHECK(results[size_t(t)].get().loss == Approx(late.losses[size_t(t)]).epsilon(1e-4));
        for (size_t s = 0; s < 3; ++s) {
          const auto state = nn::remote_state_dict(f.blocks[s]).get();
          const auto& linear = late.now.layers[s]->linear;
          CHECK(difference(state.at("linear.weight"), linear.weight.detach(), 1e-3, 1e-4) == "");
          CHECK(difference(state.at("linear.bias"), linear.bias.detach(), 1e-3, 1e-4) == "");
        }
        nothing_left(*f.cluster);
      }
}

TEST_CASE("a step begins while the one before it is still run backward", "[sim]") {
  auto types = hosting<Block>();
  for (auto& type : builtin_actors()) types.push_back(type);
  SimulatedCluster cluster(1, 3, types);
  cluster.network().set_faults({.delay = std::chrono::milliseconds(1)});
  const auto a = cluster.here(0).spawn<Block>(1, int64_t{0}), b = cluster.here(0).spawn<Block>(2, int64_t{1});
  Pipeline pipeline(Here(internal::rref::RefTable::of(cluster.worker(0))),
                    {stage<&Block::forward>(a), stage<&Block::forward>(b).with_loss<&Block::loss>()},
                    {.schedule = "gpipe", .micro_batches = 2});
  autograd::Context first(cluster.worker(0));
  const auto one = pipeline.step_async(Value(input(0)), Value(target(0)));
  REQUIRE(cluster.await(pipeline.forwards_done()).ok());
  CHECK_FALSE(one.is_ready());  // its gradients are on their way to the first stage, a millisecond long
  autograd::Context second(cluster.worker(0));
  const auto two = pipeline.step_async(Value(input(1)), Value(target(1)));
  CHECK_FALSE(one.is_ready());
  REQUIRE(cluster.await(one).ok());
  CHECK_FALSE(two.is_ready());
  REQUIRE(cluster.await(two).ok());
}

TEST_CASE("a pipeline with updates one step late says delays and weights as servers do and learns by them") {
  const auto weight = [](bool by_delay, StalenessLedger& ledger) {
    Fixture f(2);
    Pipeline pipeline(f.cluster->here(), f.stages(), {.micro_batches = 2});
    optim::Distributed<optim::SGD> sgd({f.blocks[0], f.blocks[1]}, {.lr = 0.1});
    DelayedUpdates train(f.cluster->here(), pipeline, sgd, {.lr_by_delay = by_delay});
    for (int t = 0; t < 6; ++t) {
      (void)train.step(Value(input(t)), Value(target(t)));
      if (t == 2 && !by_delay) sgd.set_lr(0.05);  // the first update was made, whose gradients were not late
    }
    train.finish();
    CHECK(sgd.lr() == (by_delay ? 0.1 : 0.05));
    ledger = train.report();
    auto metrics = f.cluster->metrics("w0");
    CHECK(metrics["pipeline#1.delay_0"] == 1);
    CHECK(metrics["pipeline#1.delay_1"] == 5);
    return nn::remote_state_dict(f.blocks[0]).get().at("linear.weight");
  };
  StalenessLedger by_delay, by_hand;
  CHECK(bit_equal(weight(true, by_delay), weight(false, by_hand)));
  const double rows = static_cast<double>(input(0).size(0));
  CHECK(by_delay.delays == std::map<int64_t, int64_t>{{0, 1}, {1, 5}});
  CHECK(by_delay.weights == std::map<int64_t, double>{{0, rows}, {1, 5 * rows}});
  CHECK(by_delay.str() == by_hand.str());
  CHECK(by_delay.str().find("gradients by delay 0: 1 of weight") == 0);
}

TEST_CASE("a step that fails is thrown by one of the next, and training goes on after it") {
  Fixture f(2);
  std::vector<Stage> stages = f.stages();
  stages[0] = stage<&Block::fails>(f.blocks[0]);
  Pipeline pipeline(f.cluster->here(), stages, {.micro_batches = 2});
  optim::Distributed<optim::SGD> sgd({f.blocks[0], f.blocks[1]}, {.lr = 0.1});
  DelayedUpdates train(f.cluster->here(), pipeline, sgd);
  f.blocks[0].call<&Block::fail_in>(4).get();
  const Error e = error_of([&] {
    for (int t = 0; t < 4; ++t) (void)train.step(Value(input(t)), Value(target(t)));
  });
  CHECK(std::string(e.what()).find("out of paper") != std::string::npos);
  CHECK(std::string(e.what()).find("forward of micro-batch 1 in stage 0") != std::string::npos);
  const auto used =
      train.report().delays;  // of steps whose gradients are there, and not of what was given up
  int64_t all = 0;
  for (const auto& [delay, count] : used) all += count;
  CHECK(all < 4);
  for (int t = 0; t < 4; ++t) (void)train.step(Value(input(t)), Value(target(t)));
  train.finish();
  int64_t then = 0;
  for (const auto& [delay, count] : train.report().delays) then += count;
  CHECK(then == all + 4);
}
