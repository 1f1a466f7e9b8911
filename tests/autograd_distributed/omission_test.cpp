// Nothing that an actor has is left untrained without a word; and where its random numbers are can be saved.
#include <catch2/catch.hpp>
#include <mutex>
#include <string>
#include <vector>

#include "actors/membership/members.h"
#include "core/base/log.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct Forgetful : Actor {
  explicit Forgetful(std::string what) : what(std::move(what)) {
    if (this->what == "frozen")
      for (const Tensor& p : second.parameters()) Tensor(p).requires_grad_(false);
  }
  Tensor forward(Tensor x) { return second(first(x)); }
  Tensors parameters() override {
    if (what == "nothing") return {};
    Tensors all = first.parameters();
    if (what == "everything")
      for (const Tensor& p : second.parameters()) all.push_back(p);
    return all;
  }
  std::string what;
  nn::Linear first{2, 2}, second{2, 2};
  static constexpr auto remote = methods<&Forgetful::forward>;
};

struct Half : nn::Layer {
  nn::Linear used{2, 2}, idle{2, 2};
  Tensor forward(const Tensor& x) override { return used(x); }
  void members(nn::Members& m) override { m("used", used), m("idle", idle); }
};
struct Held : nn::ModuleActor<Half> {
  Tensor forward(Tensor x) { return net(x); }
  static constexpr auto remote = methods<&Held::forward>;
};

// Of two layers it uses one, and says so.
struct Stage : nn::Layer {
  explicit Stage(bool wide) : wide(wide), narrow_layer(2, 2), wide_layer(2, 4) {}
  Tensor forward(const Tensor& x) override { return wide ? wide_layer(x) : narrow_layer(x); }
  void members(nn::Members& m) override {
    wide ? m("wide", wide_layer) : m("narrow", narrow_layer);
    wide ? m.without(narrow_layer) : m.without(wide_layer);
  }
  bool wide;
  nn::Linear narrow_layer, wide_layer;
};

struct StageActor : nn::ModuleActor<Stage> {
  explicit StageActor(bool wide) : ModuleActor(wide) {}
  Tensor forward(Tensor x) { return net(x); }
  static constexpr auto remote = methods<&StageActor::forward>;
};

struct Noisy : nn::ModuleActor<nn::Dropout> {
  Tensors draw() {
    Tensors out{net(ones({64})), ops::rand({8})};
    return out;
  }
  static constexpr auto remote = methods<&Noisy::draw>;
};

std::mutex mutex;
std::vector<std::string> logged;

const Tensor kInput = ones({1, 2});

}  // namespace

TEST_CASE("an actor without parameters, or with a layer that it does not give, is refused by name") {
  auto cluster = Cluster::in_process(3, hosting<Forgetful>());
  const auto step = [&](const std::string& what) {
    auto a = cluster->spawn<Forgetful>("w1", std::string("everything")),
         b = cluster->spawn<Forgetful>("w2", what);
    optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 0.1});
    autograd::Context context(*cluster);
    context.backward(b.call<&Forgetful::forward>(a.call<&Forgetful::forward>(kInput)).get().sum());
    optimizer.step(context);
  };
  step("everything");
  step("frozen");
  const Error nothing = error_of([&] { step("nothing"); }), half = error_of([&] { step("half"); });
  CHECK(nothing.kind() == ErrorKind::invalid);
  CHECK_THAT(nothing.what(), Contains("[optim] actor ") && Contains("Forgetful#") && Contains(" on w2") &&
                                 Contains("has no parameters to train: its parameters() has to return them"));
  CHECK(half.kind() == ErrorKind::invalid);
  CHECK_THAT(half.what(),
             Contains("has a member Linear(2, 2) whose weight (float32 [2, 2]) would not be trained"));
}

TEST_CASE("actors around modules without parameters are fine beside others, and refused alone") {
  auto cluster = Cluster::in_process(3, hosting<Noisy, Held>());
  auto trained = cluster->spawn<Held>("w1");
  auto idle = cluster->spawn<Noisy>("w2"), more = cluster->spawn<Noisy>("w1");
  optim::Distributed<optim::SGD> both({trained, idle}, {.lr = 0.1}), none({idle, more}, {.lr = 0.1});
  autograd::Context context(*cluster);
  context.backward(trained.call<&Held::forward>(kInput).get().sum());
  CHECK(both.try_step(context).get().updated() == 2);
  CHECK(both.state().size() == 2);
  const Error e = error_of([&] { none.step(context); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(),
             Contains("there is no parameter to train") && Contains(" on w2") && Contains(" on w1"));
}

TEST_CASE("a layer that an actor's module leaves out on purpose is not asked for") {
  auto cluster = Cluster::in_process(2, hosting<StageActor>());
  auto narrow = cluster->spawn<StageActor>("w0", false), wide = cluster->spawn<StageActor>("w1", true);
  optim::Distributed<optim::SGD> optimizer({narrow, wide}, {.lr = 0.1});
  autograd::Context context(*cluster);
  context.backward(wide.call<&StageActor::forward>(narrow.call<&StageActor::forward>(kInput)).get().sum());
  CHECK(optimizer.try_step(context).get().updated() == 4);
}

TEST_CASE("a parameter that no context has reached in 100 steps is named once, with its actor") {
  logged.clear();
  internal::log::set_sink([](internal::log::Level level, const std::string& text) {
    std::lock_guard lock(mutex);
    if (level == internal::log::Level::warning) logged.push_back(text);
  });
  auto cluster = Cluster::in_process(2, hosting<Held>());
  auto a = cluster->spawn<Held>("w1");
  optim::Distributed<optim::SGD> optimizer({a}, {.lr = 0.1});
  for (int step = 0; step < 210; ++step) {
    autograd::Context context(*cluster);
    context.backward(a.call<&Held::forward>(kInput).get().sum());
    optimizer.step(context);
  }
  internal::log::set_sink(nullptr);
  std::lock_guard lock(mutex);
  REQUIRE(logged.size() == 2);
  CHECK_THAT(logged[0], Contains("[optim] idle.weight of ") && Contains("Held#") && Contains(" on w1") &&
                            Contains("100 steps"));
  CHECK_THAT(logged[1], Contains("idle.bias of "));
}

TEST_CASE("an actor that is made again goes on with the random numbers that it would have had") {
  auto cluster = Cluster::in_process(3, hosting<Noisy, Forgetful>());
  auto a = cluster->spawn<Noisy>("w1"), b = cluster->spawn<Noisy>("w2");
  (void)a.call<&Noisy::draw>().get();
  const auto state = nn::remote_rng_state(a).get();
  CHECK(state.size() == 2);
  const Tensors next = a.call<&Noisy::draw>().get();
  CHECK_FALSE(bit_equal(b.call<&Noisy::draw>().get()[1], next[1]));
  nn::load_remote_rng_state(b, state).get();
  const Tensors same = b.call<&Noisy::draw>().get();
  for (size_t i = 0; i < next.size(); ++i) CHECK(bit_equal(same[i], next[i]));
  // Any actor has a stream.
  auto plain = cluster->spawn<Forgetful>("w1", std::string("everything"));
  const auto of_plain = nn::remote_rng_state(plain).get();
  CHECK(of_plain.size() == 1);
  nn::load_remote_rng_state(plain, of_plain).get();
  CHECK_THAT(error_of([&] { nn::load_remote_rng_state(plain, state).get(); }).what(),
             Contains("unexpected generator"));
  CHECK_THAT(error_of([&] { nn::load_remote_rng_state(a, of_plain).get(); }).what(),
             Contains("missing generator"));
  CHECK_THAT(error_of([&] { nn::load_remote_rng_state(a, {}).get(); }).what(), Contains("missing actor"));
}
