// Modules of actors from afar: parameters, states, modes; and a model whose parts live on other workers.
#include <catch2/catch.hpp>

#include <algorithm>
#include <latch>

#include "actors/membership/members.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct Block : nn::Module {
  Block(int64_t in, int64_t out, uint64_t seed) : random(seed), fc(in, out, random), drop(0.5, seed) {}
  Tensor forward(const Tensor& x) { return drop(fc(x)); }
  void members(nn::Members& m) override { m("fc", fc), m("drop", drop); }
  Generator random;
  nn::Linear fc;
  nn::Dropout drop;
};

struct Shard : nn::ModuleActor<Block> {
  Shard(int64_t in, int64_t out, uint64_t seed) : ModuleActor(in, out, seed) {}
  Tensor forward(Tensor x) { return net.forward(x); }
  void holds() {
    started->count_down();
    go_on->wait();
  }
  static inline std::latch *started = nullptr, *go_on = nullptr;
  static constexpr auto remote = methods<&Shard::forward, blocking<&Shard::holds>>;
};

// Uses a module that somebody has sent it.
struct User : Actor {
  Task<Tensor> forward(RRef<Shard> shard, Tensor x) { co_return co_await shard.call<&Shard::forward>(x); }
  Task<Tensor> weight(RRef<Shard> shard) {
    auto parameters = co_await nn::remote_parameters(shard);
    co_return parameters.at("fc.weight");
  }
  static constexpr auto remote = methods<&User::forward, &User::weight>;
};

struct Plain : Actor {
  static constexpr auto remote = methods<>;
};

// Whose own tensors are frozen now and then.
struct TwoTensors : Actor {
  void freeze(bool first, bool second) { a.requires_grad_(!first), b.requires_grad_(!second); }
  int64_t count() { return int64_t(parameters().size()); }
  Tensor a = ones({2}).requires_grad_(), b = zeros({3}).requires_grad_();
  static constexpr auto remote = methods<&TwoTensors::freeze, &TwoTensors::count>;
};

}  // namespace

TEST_CASE("an actor's own tensors keep their names, frozen or not") {
  auto cluster = Cluster::in_process(1, hosting<TwoTensors>());
  auto actor = cluster->spawn<TwoTensors>("w0");
  for (const auto& [first, second] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    actor.call<&TwoTensors::freeze>(first, second).get();
    const auto parameters = nn::remote_parameters(actor).get();
    CHECK(actor.call<&TwoTensors::count>().get() == 2);
    CHECK(parameters.at("tensor0").numel() == 2);
    CHECK(parameters.at("tensor1").numel() == 3);
  }
}

TEST_CASE("parameters, states and modes of a module are read and set from afar") {
  auto cluster = Cluster::in_process(3, hosting<Shard, Plain>());
  auto a = cluster->spawn<Shard>("w1", 3, 4, uint64_t{1}), b = cluster->spawn<Shard>("w2", 3, 4, uint64_t{2});
  Block same(3, 4, 1);
  const auto parameters = nn::remote_parameters(a).get();
  CHECK(parameters.size() == 2);
  CHECK(bit_equal(parameters.at("fc.weight"), same.fc.weight.detach()));
  CHECK(nn::remote_state_dict(b).get().size() == same.state_dict().size());

  nn::load_remote_state_dict(b, nn::remote_state_dict(a).get()).get();
  CHECK(bit_equal(nn::remote_parameters(b).get().at("fc.bias"), parameters.at("fc.bias")));
  CHECK_THAT(error_of([&] { nn::load_remote_state_dict(b, {{"fc.weight", zeros({4, 3})}}).get(); }).what(),
             Contains("fc.bias"));

  CHECK(nn::remote_training(a).get());
  const Tensor x = ones({64, 3});
  NoGradGuard guard;
  const auto zeros = [](const Tensor& y) {
    const auto values = y.to_vector<float>();
    return std::count(values.begin(), values.end(), 0.f);
  };
  CHECK(zeros(a.call<&Shard::forward>(x).get()) > 0);
  nn::set_remote_training(a, false).get();
  CHECK_FALSE(nn::remote_training(a).get());
  CHECK(bit_equal(a.call<&Shard::forward>(x).get(), same.fc(x)));
  nn::set_remote_training(a).get();
  CHECK(zeros(a.call<&Shard::forward>(x).get()) > 0);

  auto plain = cluster->spawn<Plain>("w1");
  const Error e = error_of([&] { nn::remote_parameters(plain).get(); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(), Contains("has no module, nor a tensor that needs gradients"));
}

TEST_CASE("what is set in a busy module takes effect although nobody keeps the future") {
  auto cluster = Cluster::in_process(2, hosting<Shard>());
  for (const char* where : {"w0", "w1"}) {
    std::latch started(1), go_on(1);
    Shard::started = &started, Shard::go_on = &go_on;
    auto a = cluster->spawn<Shard>(where, 3, 4, uint64_t{1}),
         other = cluster->spawn<Shard>("w0", 3, 4, uint64_t{2});
    NoGradGuard guard;
    (void)other.call<&Shard::forward>(ones({2, 3})).get();  // its masks go on
    const auto state = nn::remote_state_dict(other).get(), random = nn::remote_rng_state(other).get();
    const auto holds = a.call<&Shard::holds>();
    started.wait();
    (void)nn::set_remote_training(a, false);
    (void)nn::load_remote_state_dict(a, state);
    (void)nn::load_remote_rng_state(a, random);
    (void)cluster->set_name(a, "shard");
    go_on.count_down();
    holds.get();
    CHECK_FALSE(nn::remote_training(a).get());
    CHECK(bit_equal(nn::remote_state_dict(a).get().at("fc.weight"), state.at("fc.weight")));
    const auto now = nn::remote_rng_state(a).get();
    REQUIRE(now.size() == random.size());
    for (const auto& [name, t] : random) CHECK(bit_equal(now.at(name), t));
    CHECK(cluster->lookup<Shard>(where + std::string("/shard")).get() == a);
    (void)cluster->drop_name(where + std::string("/shard"));
    CHECK(cluster->here().names(where).get().empty());
  }
}

TEST_CASE("an actor around a module is trained from afar") {
  auto cluster = Cluster::in_process(3, hosting<Shard>());
  auto a = cluster->spawn<Shard>("w1", 3, 4, uint64_t{1});
  nn::set_remote_training(a, false).get();
  optim::Distributed<optim::SGD> optimizer({a}, {.lr = 0.5});
  const auto before = nn::remote_parameters(a).get();
  autograd::Context context(*cluster);
  context.backward(a.call<&Shard::forward>(ones({2, 3})).get().sum());
  optimizer.step(context);
  const auto after = nn::remote_parameters(a).get();
  CHECK(after.at("fc.bias").to_vector<float>()[0] == before.at("fc.bias").to_vector<float>()[0] - 1);
}

TEST_CASE("a module is sent to a third worker, and called and looked at from there") {
  auto cluster = Cluster::in_process(3, hosting<Shard, User, Plain>());
  auto module = cluster->spawn<Shard>("w1", 3, 4, uint64_t{1});
  auto user = cluster->spawn<User>("w2");
  nn::set_remote_training(module, false).get();
  Block same(3, 4, 1);
  const Tensor x = ones({2, 3});
  autograd::Context context(*cluster);
  Tensor y = user.call<&User::forward>(module, x).get();
  CHECK(bit_equal(y.detach(), same.fc(x).detach()));
  CHECK(bit_equal(user.call<&User::weight>(module).get(), same.fc.weight.detach()));
  context.backward(y.sum());
  autograd::backward(same.fc(x).sum());
  optim::Distributed<optim::SGD>({module}, {.lr = 1}).step(context);  // its parameters have their gradients
  CHECK(bit_equal(user.call<&User::weight>(module).get(),
                  ops::sub(same.fc.weight.detach(), same.fc.weight.grad())));
  // What a module does not list cannot be called; what is no module has no parameters.
  CHECK_THAT(error_of([&] { module.call_by_name("zero_grad", {}).get(); }).what(),
             Contains("no such method"));
  auto plain = cluster->spawn<Plain>("w1");
  CHECK_THAT(error_of([&] { nn::set_remote_training(plain, true).get(); }).what(),
             Contains("has no module, nor a tensor that needs gradients"));
}
