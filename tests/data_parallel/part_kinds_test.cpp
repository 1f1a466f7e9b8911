// What parts of replicas may be: run again by checkpoints, in 16 bits.
#include <catch2/catch.hpp>
#include <map>

#include "autograd/checkpoint.h"
#include "tests/data_parallel/parts.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"

using namespace troupe;
using namespace troupe::parallel;
using testing::difference;
using testing::kWays;
using testing::nothing_left;
using testing::wave;

namespace {

// Runs a part of itself again in the backward pass, and a part of that.
struct Thrifty : nn::Layer {
  Tensor forward(const Tensor& x) override {
    const auto inner = [this](const Tensor& in) { return ops::tanh(up(in)); };
    const auto outer = [this, inner](const Tensor& in) {
      return ops::tanh(down(autograd::checkpoint(inner, in) * scale));
    };
    return autograd::checkpoint(outer, x) + x;
  }
  void members(nn::Members& m) override { m("up", up), m("down", down), m("scale", scale); }
  nn::Linear up{6, 9}, down{9, 6};
  Tensor scale = wave({9}, 2).requires_grad_();
};
struct ThriftyParts : nn::Module {
  ThriftyParts() {
    int i = 0;
    for (auto& [name, p] : named_parameters()) p.detach().copy_(wave(p.shape(), ++i));
  }
  void members(nn::Members& m) override { m("first", first), m("second", second); }
  Sharded<Thrifty> first, second;
};
struct ThriftyActor : nn::ModuleActor<ThriftyParts> {
  Task<Tensor> loss(Tensor x) {
    x = co_await net.first(x);
    x = co_await net.second(x);
    co_return ops::mean(x * x);
  }
  static constexpr auto remote = methods<&ThriftyActor::loss>;
};

}  // namespace

TEST_CASE("a checkpoint within a part runs again with the parameters of then") {
  std::map<std::string, Tensor> want;
  for (const auto& [shard, gather, reduce] : kWays) {
    auto cluster = Cluster::in_process(3, hosting<ThriftyActor>());
    const DataParallelOptions options{.shard = shard, .gather = gather, .reduce = reduce};
    DataParallel<ThriftyActor> net(cluster->here(), Group(*cluster, {"w0", "w1", "w2"}), options);
    optim::Distributed<optim::Adam> optimizer(net, {.lr = 0.05});
    for (int i = 0; i < 3; ++i) {
      autograd::Context step(*cluster);
      const Tensor loss = net.mean<&ThriftyActor::loss>(split(wave({5, 6}, i))).get();
      step.backward(loss * 0.5, {}, {.retain_graph = true});
      step.backward(loss * 0.5);
      optimizer.step(step);
    }
    const StateDict state = net.state_dict().get();
    if (want.empty()) want = state;
    INFO(word(shard) << ", once: " << (gather == Per::step) << (reduce == Per::step));
    for (const auto& [name, value] : state) {
      INFO(name);
      CHECK(bit_equal(value, want.at(name)));
    }
    nothing_left(*cluster);
  }
}

namespace {

// In 16 bits.
struct Narrow : nn::Layer {
  Narrow(int64_t in, int64_t out) : weight(wave({in, out}, double(in), bfloat16).requires_grad_()) {}
  Tensor forward(const Tensor& x) override { return ops::tanh(ops::matmul(x, weight)); }
  void members(nn::Members& m) override { m("weight", weight); }
  Tensor weight;
};
struct NarrowNet : nn::Module {
  void members(nn::Members& m) override { m("first", first), m("second", second); }
  Sharded<Narrow> first{6, 9}, second{9, 4};
};
Tensor narrow_loss(const Tensor& out, const Tensor& y) { return mse_loss(out.to(float32), y); }
struct NarrowActor : nn::ModuleActor<NarrowNet> {
  Task<Tensor> loss(Tensor x, Tensor y) {
    x = co_await net.first(x.to(bfloat16));
    x = co_await net.second(x);
    co_return narrow_loss(x, y);
  }
  static constexpr auto remote = methods<&NarrowActor::loss>;
};

}  // namespace

TEST_CASE("parts in bfloat16 are trained as by hand with float32 masters") {
  constexpr int kSteps = 50;
  const std::vector<std::string> names{"first.weight", "second.weight"};
  const auto x_of = [](int i) { return wave({6, 6}, i); };
  const auto y_of = [](int i) { return wave({6, 4}, i + 1); };
  Tensors start, masters;
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{6, 9}, {9, 4}}) {
    start.push_back(wave({in, out}, double(in), bfloat16).to(float32));
    masters.push_back(start.back().clone_data().requires_grad_());
  }
  optim::Adam by_hand(masters, {.lr = 4e-4});
  for (int i = 0; i < kSteps; ++i) {
    Tensors sums(2);
    for (int64_t r = 0; r < 3; ++r) {  // as three replicas of two rows
      Tensors narrow;
      for (const Tensor& m : masters) narrow.push_back(m.detach().to(bfloat16).requires_grad_());
      Tensor h = ops::tanh(ops::matmul(x_of(i).slice(0, 2 * r, 2 * r + 2).to(bfloat16), narrow[0]));
      h = ops::tanh(ops::matmul(h, narrow[1]));
      const Tensors grads =
          autograd::grad({narrow_loss(h, y_of(i).slice(0, 2 * r, 2 * r + 2)) * (1.0 / 3)}, narrow);
      for (size_t k = 0; k < 2; ++k) {
        const Tensor wide = grads[k].to(float32);
        sums[k] = sums[k].defined() ? sums[k] + wide : wide;
      }
    }
    by_hand.step(sums);
  }
  for (const auto& [shard, gather, reduce] : kWays) {
    auto cluster = Cluster::in_process(3, hosting<NarrowActor>());
    const DataParallelOptions options{.shard = shard, .gather = gather, .reduce = reduce};
    DataParallel<NarrowActor> net(cluster->here(), Group(*cluster, {"w0", "w1", "w2"}), options);
    optim::Distributed<optim::Adam> optimizer(net, {.lr = 4e-4});
    for (int i = 0; i < kSteps; ++i) {
      autograd::Context step(*cluster);
      step.backward(net.mean<&NarrowActor::loss>(split(x_of(i)), split(y_of(i))).get());
      optimizer.step(step);
    }
    const StateDict state = net.state_dict().get();
    INFO(word(shard) << ", once: " << (gather == Per::step) << (reduce == Per::step));
    for (size_t k = 0; k < 2; ++k) {
      const Tensor& got = state.at(names[k]);
      CHECK(got.dtype() == bfloat16);
      // Steps are smaller than what 16 bits of a weight near 1/2 can tell apart.
      CHECK(difference(got.to(float32), masters[k].detach(), 0, 3e-3) == "");
      CHECK(ops::amax(ops::abs(masters[k].detach() - start[k])).item() > 0.008);
    }
  }
}

namespace {

// A wrapper with the names of what it wraps, and a list of such that grows; two names of one table in a part.
struct Adapted : nn::Layer {
  explicit Adapted(int64_t n) : base(n, n) {}
  Tensor forward(const Tensor& x) override { return base(x) + ops::matmul(x, adapter); }
  void members(nn::Members& m) override { m("", base), m("adapter", adapter); }
  nn::Linear base;
  Tensor adapter = wave({5, 5}, 4).requires_grad_();
};
struct TiedTable : nn::Layer {
  Tensor forward(const Tensor& x) override { return ops::matmul(ops::matmul(x, in), out.t()); }
  void members(nn::Members& m) override { m("in", in), m("out", out); }
  Tensor in = wave({5, 7}, 3).requires_grad_(), out = in;
};
struct ListOfParts : nn::Module {
  ListOfParts() {
    for (int i = 0; i < 3; ++i) blocks.emplace_back(5);
  }
  Task<Tensor> operator()(Tensor x) {
    for (auto& block : blocks) x = ops::tanh(co_await block(x));
    co_return co_await table(x);
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(i), blocks[i]);
    m("table", table);
  }
  std::vector<Sharded<Adapted>> blocks;
  Sharded<TiedTable> table;
};
struct ListActor : nn::ModuleActor<ListOfParts> {
  Task<Tensor> loss(Tensor x) {
    const Tensor out = co_await net(x);
    co_return ops::mean(out * out);
  }
  void move_a_part() { auto other = std::move(net.blocks[0]); }
  static constexpr auto remote = methods<&ListActor::loss, &ListActor::move_a_part>;
};

}  // namespace

TEST_CASE("parts lie in a vector, wrap others by their names, and take a tied table by either of its names") {
  std::map<std::string, Tensor> want;
  for (const auto& [shard, gather, reduce] : kWays) {
    manual_seed(5);
    auto cluster = Cluster::in_process(3, hosting<ListActor>());
    const DataParallelOptions options{.shard = shard, .gather = gather, .reduce = reduce};
    DataParallel<ListActor> net(cluster->here(), Group(*cluster, {"w0", "w1", "w2"}), options);
    StateDict state = net.state_dict().get();
    CHECK(state.contains("block2.weight"));
    CHECK(state.contains("block2.adapter"));
    for (auto& [name, t] : state)
      if (!name.starts_with("table.")) t = wave(t.shape(), double(name.size()));
    state["table.out"] = ones({5, 7});
    CHECK_THAT(testing::error_of([&] { net.load_state_dict(state).get(); }).what(),
               Catch::Contains("table.in and table.out are one tensor here"));
    state.erase("table.in");
    net.load_state_dict(state).get();
    optim::Distributed<optim::Adam> optimizer(net, {.lr = 0.05});
    for (int i = 0; i < 3; ++i) {
      autograd::Context step(*cluster);
      step.backward(net.mean<&ListActor::loss>(split(wave({5, 5}, i))).get());
      optimizer.step(step);
    }
    state = net.state_dict().get();
    if (want.empty()) want = state;
    for (const auto& [name, t] : state) CHECK(bit_equal(t, want.at(name)));
    CHECK(bit_equal(state.at("table.in"), state.at("table.out")));
    if (shard == Shard::all)
      CHECK_THAT(testing::error_of([&] { net.replicas()[0].call<&ListActor::move_a_part>().get(); }).what(),
                 Catch::Contains("[Sharded] part block0 was copied or moved after replicas were made"));
  }
}
