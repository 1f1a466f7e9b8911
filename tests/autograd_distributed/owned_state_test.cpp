// All that an actor has, or the driver: saved in the middle of training and loaded, it gives the same bits.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "autograd/distributed/optim/owned_state.h"
#include "autograd/distributed/optim/saved_modes.h"
#include "core/base/call_frame.h"
#include "optim/loss_scaler.h"
#include "rref/ref_table.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using internal::OwnedState;
using testing::error_of;

namespace {

// With everything that an actor may have: modules that the constructor made and one made later, a mode, a
// generator, a buffer, a loose tensor that only its own optimizer knows, members.
struct OwnerOfAll : Actor {
  OwnerOfAll() : own({loose}, {.lr = 0.05}) { norm.eval(); }
  Tensor forward(Tensor x) {
    if (!later) later = std::make_shared<nn::Linear>(8, 8);
    ++calls;
    scale = scale * 1.01 + 0.001 * random.uniform();
    const Tensor h = dropout(norm(reshape(fc(x), {-1, 8, 1, 1})));
    return (*later)(reshape(h, {-1, 8}))*loose.sum() + scale;
  }
  double step_own() {
    autograd::backward((loose * loose).sum());
    own.step(), own.zero_grad();
    return loose.sum().item();
  }
  void switch_modes() { norm.train(), fc.bias.requires_grad_(false); }
  nn::Linear fc{4, 8};
  nn::BatchNorm2d norm{8};
  nn::Dropout dropout{0.5};
  std::shared_ptr<nn::Linear> later;
  Tensor loose = ones({3}).requires_grad_();
  optim::Adam own;
  int64_t calls = 0;
  double scale = 0;
  Generator random{3};
  Keep keep{"calls", calls, "scale", scale, "random", random};
  static constexpr auto remote =
      methods<&OwnerOfAll::forward, &OwnerOfAll::step_own, &OwnerOfAll::switch_modes>;
};

struct PlainOwner : Actor {
  int64_t n = 0;
  int64_t next() { return ++n; }
  Keep keep{"n", n};
  static constexpr auto remote = methods<&PlainOwner::next>;
};

std::shared_ptr<internal::actors::ActorCell> cell_of(Cluster& cluster, const AnyRef& actor) {
  return cluster.worker().actors().find(actor.id());
}

// The job, in the actor's mailbox.
void in_mailbox(const std::shared_ptr<internal::actors::ActorCell>& cell, const std::function<void()>& job) {
  Promise<void> done;
  cell->post(
      [&] {
        try {
          job();
          done.set();
        } catch (...) {
          done.fail(current_error());
        }
      },
      internal::actors::DispatchTarget::pool);
  done.future().get();
}

OwnedState saved(Cluster& cluster, const AnyRef& actor) {
  OwnedState out;
  const auto cell = cell_of(cluster, actor);
  in_mailbox(cell, [&] { out = internal::state_of_actor(cell->object(), *cell); });
  return out;
}

void load(Cluster& cluster, const AnyRef& actor, const OwnedState& state) {
  const auto cell = cell_of(cluster, actor);
  in_mailbox(cell, [&] { internal::load_actor(cell->object(), *cell, state); });
}

struct OwnerRun {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(1);
  RRef<OwnerOfAll> actor = cluster->spawn<OwnerOfAll>("w0");
  optim::Distributed<optim::AdamW> optimizer{{actor}, {.lr = 0.02}};
  Generator data{11};
  std::vector<double> steps(int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) {
      autograd::Context step(*cluster);
      const Tensor loss = actor(ops::randn({6, 4}, data)).get().square().mean();
      step.backward(loss);
      optimizer.step(step);
      losses.push_back(loss.item());
      losses.push_back(actor.call<&OwnerOfAll::step_own>().get());
    }
    return losses;
  }
};

}  // namespace

TEST_CASE("an actor goes on from its whole state with the same bits") {
  OwnerRun run;
  (void)run.steps(3);
  run.actor.call<&OwnerOfAll::switch_modes>().get();
  const OwnedState state = saved(*run.cluster, run.actor);
  const Generator data = run.data;
  const auto expected = run.steps(4);
  for (const char* name : {"0.weight", "1.running_mean", "Linear#0.weight", "tensor0"}) {
    INFO(name);
    CHECK(state.model.contains(name));
  }
  for (const char* name :
       {"stream", "net.modes", "adam#0.0.exp_avg", "adamw#0.0.weight.exp_avg", "Keep#0.calls"}) {
    INFO(name);
    CHECK(state.rest.contains(name));
  }

  SECTION("the same actor, back in time") {
    load(*run.cluster, run.actor, state);
    run.data = data;
    CHECK(run.steps(4) == expected);
  }
  SECTION("a new one, which trained otherwise") {
    OwnerRun other;
    other.data = Generator(99);
    (void)other.steps(2);
    load(*other.cluster, other.actor, state);
    other.data = data;
    CHECK(other.steps(4) == expected);
    const OwnedState there = saved(*other.cluster, other.actor), here = saved(*run.cluster, run.actor);
    REQUIRE(there.model.size() == here.model.size());
    for (const auto& [name, t] : here.model) {
      INFO(name);
      CHECK(bit_equal(t, there.model.at(name)));
    }
    REQUIRE(there.rest.size() == here.rest.size());
    for (const auto& [name, t] : here.rest) {
      INFO(name);
      CHECK(bit_equal(t, there.rest.at(name)));
    }
  }
}

TEST_CASE("a state that does not fit an actor is refused by name") {
  OwnerRun run;
  (void)run.steps(1);
  const OwnedState state = saved(*run.cluster, run.actor);
  const auto refusal = [&](const OwnedState& other) {
    return std::string(error_of([&] { load(*run.cluster, run.actor, other); }).what());
  };
  OwnedState less = state;
  less.rest.erase("Keep#0.calls");
  CHECK_THAT(refusal(less), Contains("no \"calls\""));
  less = state;
  less.model.erase("Linear#0.weight");
  CHECK_THAT(refusal(less), Contains("weight"));
  less = state;
  less.rest.erase("stream");
  CHECK_THAT(refusal(less), Contains("\"stream\""));
  OwnedState more = state;
  more.rest["Keep#1.calls"] = more.rest["Keep#0.calls"];
  CHECK_THAT(refusal(more), Contains("OwnerOfAll#0:") && Contains("has nothing that fits Keep#1.calls"));
  OwnedState other = state;
  other.model["0.weight"] = ops::to(other.model["0.weight"], float64);
  CHECK_THAT(refusal(other), Contains("0.weight") && Contains("float64"));
  load(*run.cluster, run.actor, state);  // and a whole one is good again

  const auto plain = run.cluster->spawn<PlainOwner>("w0");
  CHECK(plain.call<&PlainOwner::next>().get() == 1);
  const OwnedState one = saved(*run.cluster, plain);
  CHECK(one.model.empty());
  CHECK(plain.call<&PlainOwner::next>().get() == 2);
  load(*run.cluster, plain, one);
  CHECK(plain.call<&PlainOwner::next>().get() == 2);
}

TEST_CASE("a program without actors goes on from the state of its driver with the same bits") {
  struct Program {
    nn::Linear first{4, 8}, second{8, 1};
    nn::Dropout dropout{0.3};
    Tensor loose = ones({1}).requires_grad_();
    optim::Adam optimizer{Tensors{first.weight, first.bias, second.weight, second.bias, loose}, {.lr = 0.05}};
    optim::Scheduler rate{optimizer, optim::cosine(20)};
    optim::Plateau plateau;
    optim::LossScaler scaler;
    int64_t step = 0;
    Keep keep{"step", step};
    std::vector<double> steps(int count) {
      std::vector<double> losses;
      for (int i = 0; i < count; ++i, ++step) {
        const Tensor x = ops::randn({6, 4});
        const Tensor loss = (second(dropout(ops::tanh(first(x)))) * loose).square().mean();
        autograd::backward(scaler.scale(loss));
        scaler.step(optimizer), scaler.update(), optimizer.zero_grad(), rate.step();
        losses.push_back(loss.item()), losses.push_back(optimizer.lr());
        plateau.step(optimizer, loss.item());
      }
      return losses;
    }
  };
  manual_seed(5);
  OwnedState state;
  std::vector<double> expected;
  {
    Program program;
    (void)program.steps(4);
    state = internal::state_of_driver();
    expected = program.steps(5);
  }
  manual_seed(6);
  Program again;
  (void)again.steps(1);
  internal::load_driver(state);
  CHECK(again.step == 4);
  CHECK(again.steps(5) == expected);
  CHECK(state.model.contains("adam#0.param4"));
  OwnedState more = state;
  more.model["Linear#7.weight"] = ones({1});
  CHECK_THAT(error_of([&] { internal::load_driver(more); }).what(),
             Contains("the driver has nothing that fits Linear#7.weight"));
  manual_seed(0);
}

TEST_CASE("modes are taken by name, and from lists of older checkpoints in order") {
  nn::Sequential net(nn::Linear(2, 2), nn::Sequential(nn::Linear(2, 1), nn::Dropout(0.5)));
  const auto modes = [&] {
    std::string all;
    for (const auto& [name, t] : internal::modes_of(net)) all += name + " ";
    return all;
  };
  CHECK(modes() == "modes ");
  net[1].train(false);
  net.named_parameters()[0].second.requires_grad_(false);
  const std::string some = "modes modes.eval.1 modes.eval.1.0 modes.eval.1.1 modes.frozen.0.weight ";
  CHECK(modes() == some);
  const StateDict saved = internal::modes_of(net);
  internal::set_modes(net, {{"modes", ones({9}, int64)}});  // 5 modules, 4 parameters
  CHECK(modes() == "modes ");
  internal::set_modes(net, saved);
  CHECK(modes() == some);
  internal::set_modes(net, {{"modes", tensor({1, 1, 0, 1, 1, 1, 0, 1, 1})}});
  CHECK(modes() == "modes modes.eval.1 modes.frozen.0.bias ");
  CHECK_THAT(error_of([&] { internal::set_modes(net, {{"modes", ones({8}, int64)}}); }).what(),
             Contains("int64 [8], expected int64 [9]"));
  CHECK_THAT(error_of([&] { internal::set_modes(net, {}); }).what(), Contains("it has no \"modes\""));
}
