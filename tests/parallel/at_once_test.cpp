// Hooks, checkpoints, skips and micro-batches of uneven sizes in one step, under every schedule.
#include "tests/parallel/stages.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

struct Mixture : nn::ModuleActor<Dense> {
  explicit Mixture(int64_t number) : ModuleActor(number) {}
  std::pair<Tensor, Tensor> gives(Tensor x) {
    const Tensor y = net(x);
    return {y, mul(y, 2)};
  }
  // Half of the gradient goes back.
  Tensor hooked(Tensor x) {
    const Tensor y = net(x);
    autograd::register_hook(y, [](const Tensor& g) { return mul(g, 0.5); }).keep();
    return y;
  }
  Tensor takes(Tensor x, Tensor skip) { return net(add(x, skip)); }
  Tensor loss(Tensor y, Tensor target) { return mse_loss(y, target); }
  static constexpr auto remote = methods<&Mixture::gives, &Mixture::hooked, &Mixture::takes, &Mixture::loss>;
};

}  // namespace

TEST_CASE("hooks, checkpoints, skips and uneven micro-batches have the gradients of the whole together") {
  const Tensor x = wave({9, kWidth}, 1), y = wave({9, kWidth}, 2);
  WholeModel whole(4);
  for (auto& layer : whole.layers) layer->zero_grad();
  const Tensor h = (*whole.layers[0])(x), next = (*whole.layers[1])(h);
  const Tensor halved = add(mul(next, 0.5), mul(next.detach(), 0.5));
  const Tensor third = (*whole.layers[2])(add(halved, mul(h, 2)));
  const Tensor loss = mse_loss((*whole.layers[3])(add(third, mul(h, 2))), y);
  autograd::backward(loss);

  Fixture<Mixture> f(4);
  const std::vector<Stage> stages{
      stage<&Mixture::gives>(f.blocks[0]).gives({"far"}), stage<&Mixture::hooked>(f.blocks[1]),
      stage<&Mixture::takes>(f.blocks[2]).takes({"far"}),
      stage<&Mixture::takes>(f.blocks[3]).takes({"far"}).with_loss<&Mixture::loss>()};
  std::vector<Value> batch, targets;
  for (const auto& [from, to] : {std::pair(0, 4), {4, 5}, {5, 7}, {7, 9}}) {
    batch.emplace_back(slice(x, 0, from, to));
    targets.emplace_back(slice(y, 0, from, to));
  }
  const std::vector<AnyRef> actors(f.blocks.begin(), f.blocks.end());
  for (const auto& [schedule, chunks] : {std::pair("gpipe", 1),
                                         {"1f1b", 1},
                                         {"zb-h1", 1},
                                         {"zb-h2", 1},
                                         {"credits(2)", 1},
                                         {"interleaved", 2},
                                         {"looped-bfs", 4},
                                         {"zb-v", 2},
                                         {"dualpipe-v", 2}})
    for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::except_last, Checkpoint::always})
      for (const bool here : {false, true}) {
        CAPTURE(schedule, chunks, int(checkpoint), here);
        std::vector<Stage> own = stages;
        PipelineOptions options{
            .schedule = schedule, .micro_batches = 4, .chunks = chunks, .checkpoint = checkpoint};
        if (here) {
          own.back().part.loss.clear();
          options.loss = [](const Value& out, const Value& target) {
            return mse_loss(*out.get_if<Tensor>(), *target.get_if<Tensor>());
          };
        }
        Pipeline pipeline(f.cluster->here(), own, options);
        optim::Distributed<optim::SGD> sgd(actors, {.lr = 1.0});
        std::vector<std::map<std::string, Tensor>> before;
        for (const auto& b : f.blocks) before.push_back(nn::remote_state_dict(b).get());
        autograd::Context context(*f.cluster);
        CHECK(pipeline.step(batch, targets).loss == Approx(loss.item()).epsilon(1e-5));
        sgd.step(context);
        std::vector<Tensors> grads;
        for (size_t i = 0; i < f.blocks.size(); ++i) {
          const auto after = nn::remote_state_dict(f.blocks[i]).get();
          grads.emplace_back();
          for (const auto& [name, value] : before[i]) grads.back().push_back(sub(value, after.at(name)));
          nn::load_remote_state_dict(f.blocks[i], before[i]).get();
        }
        compare(grads, whole);
      }
  nothing_left(*f.cluster);
}
