// BatchNorm in a pipeline: its running statistics move as by the whole batch.
#include "tests/parallel/stages.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

struct Images : nn::ModuleActor<nn::Sequential> {
  explicit Images(int64_t number)
      : ModuleActor(nn::Conv2d(2, 2, 1), nn::Sequential(nn::BatchNorm2d(2), nn::ReLU())) {
    net[0].load_state_dict(
        {{"weight", wave({2, 2, 1, 1}, static_cast<double>(number))}, {"bias", wave({2}, 1)}});
  }
  Tensor forward(Tensor x) {
    if (--left == 0) throw std::runtime_error("out of film");
    return net(x);
  }
  Tensor loss(Tensor y, Tensor target) { return mse_loss(y, target); }
  void fail_in(int64_t calls) { left = calls; }
  int64_t left = 0;
  static constexpr auto remote = methods<&Images::forward, &Images::loss, &Images::fail_in>;
};

using State = std::map<std::string, Tensor>;
const char* const kRunningMean = "1.0.running_mean";
const char* const kRunningVar = "1.0.running_var";
const char* const kBatches = "1.0.num_batches_tracked";

// After one pass of the whole batch through the first stage.
State whole(const Tensor& x) {
  Images images(0);
  images.net(x);
  return images.net.state_dict();
}

}  // namespace

TEST_CASE("running statistics are those of the whole batch, under every schedule and checkpoint") {
  const Tensor x = wave({7, 2, 3, 2}, 1), y = wave({7, 2, 3, 2}, 2);
  const State expected = whole(x);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "credits(1)"})
    for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::except_last, Checkpoint::always}) {
      INFO(schedule << ", checkpoint " << int(checkpoint));
      Fixture<Images> f(2);
      Pipeline pipeline(f.cluster->here(), f.stages(),
                        {.schedule = schedule, .micro_batches = 3, .checkpoint = checkpoint});
      {
        autograd::Context context(*f.cluster);
        pipeline.step(Value(x), Value(y));
      }
      State state = nn::remote_state_dict(f.blocks[0]).get();
      CHECK(difference(state.at(kRunningMean), expected.at(kRunningMean), 1e-5, 1e-6) == "");
      CHECK(difference(state.at(kRunningVar), expected.at(kRunningVar), 1e-5, 1e-6) == "");
      CHECK(state.at(kBatches).item() == 1);
      // Forward alone counts too while training; in use, nothing moves.
      pipeline.forward(Value(x));
      CHECK(nn::remote_state_dict(f.blocks[0]).get().at(kBatches).item() == 2);
      nn::set_remote_training(f.blocks[0], false).get();
      pipeline.forward(Value(x));
      CHECK(nn::remote_state_dict(f.blocks[0]).get().at(kBatches).item() == 2);
    }
}

TEST_CASE("a step that fails leaves the running statistics as they were") {
  const Tensor x = wave({8, 2, 3, 2}, 1), y = wave({8, 2, 3, 2}, 2);
  Fixture<Images> f(2);
  Pipeline pipeline(f.cluster->here(), f.stages(), {.schedule = "gpipe", .micro_batches = 4});
  f.blocks[1].call<&Images::fail_in>(3).get();
  {
    autograd::Context context(*f.cluster);
    CHECK(std::string(error_of([&] { pipeline.step(Value(x), Value(y)); }).what()).find("micro-batch 2") !=
          std::string::npos);
  }
  {
    autograd::Context context(*f.cluster);
    pipeline.step(Value(x), Value(y));
  }
  const State expected = whole(x), state = nn::remote_state_dict(f.blocks[0]).get();
  CHECK(state.at(kBatches).item() == 1);
  CHECK(difference(state.at(kRunningMean), expected.at(kRunningMean), 1e-5, 1e-6) == "");
  CHECK(difference(state.at(kRunningVar), expected.at(kRunningVar), 1e-5, 1e-6) == "");
}
