// Modules, optimizers, clipping and checkpoints on the null device: the bits of the CPU.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "core/graph/anomaly.h"
#include "data/formats/safetensors.h"
#include "optim/gradient_norm.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/module_training.h"
#include "tests/support/null_device.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::null0, testing::null1, testing::some, testing::train, testing::Trained;

namespace {

void compare(const Trained& got, const Trained& wanted) {
  CHECK(got.losses == wanted.losses);
  REQUIRE(got.state.size() == wanted.state.size());
  for (const auto& [name, t] : wanted.state) {
    INFO(name);
    CHECK(bit_equal(got.state.at(name), t));
  }
}

}  // namespace

TEST_CASE("every module trains on the null device as on the CPU") {
  testing::install_null_device();
  std::set<std::string> tried;
  const std::set<std::string> without_parameters{"sequential", "tanh",       "sigmoid",
                                                 "max_pool2d", "avg_pool2d", "flatten"};
  auto cases = testing::module_cases();
  for (const char* elementwise : {"silu", "mish", "hardswish", "hardsigmoid", "relu6", "selu", "log_sigmoid",
                                  "softsign", "tanhshrink", "leaky_relu", "elu", "celu", "hardtanh",
                                  "softplus", "softshrink", "hardshrink", "glu", "identity", "prelu"})
    cases.push_back({elementwise, {}, some({4, 6}, 1)});
  for (const char* along : {"softmax", "log_softmax", "softmin"})
    cases.push_back({along, {}, some({4, 6}, 1), {{"dim", int64_t{-1}}}});
  const auto n = [](int64_t x) { return Value(x); };
  const Tensor images = some({2, 4, 6, 6}, 2);
  cases.push_back({"threshold", {Value(0.1), Value(2.0)}, some({4, 6}, 1)});
  cases.push_back({"conv1d", {n(4), n(3), n(3)}, some({2, 4, 6}, 2)});
  cases.push_back({"conv_transpose2d", {n(4), n(3), n(3)}, images});
  cases.push_back({"instance_norm1d", {n(4)}, some({2, 4, 6}, 2), {{"affine", true}}});
  cases.push_back({"instance_norm3d", {n(4)}, some({2, 4, 3, 3, 3}, 2), {{"affine", true}}});
  cases.push_back({"batch_norm1d", {n(6)}, some({4, 6}, 1)});
  cases.push_back({"batch_norm3d", {n(4)}, some({2, 4, 3, 3, 3}, 2)});
  cases.push_back({"rnn", {n(8), n(4)}, some({2, 5, 8}, 3)});
  cases.push_back({"adaptive_avg_pool2d", {n(3)}, images});
  cases.push_back({"adaptive_max_pool2d", {n(3)}, images});
  cases.push_back({"pixel_shuffle", {n(2)}, images});
  for (const auto& c : cases) {
    INFO(c.module);
    tried.insert(c.module);
    Value spec = nn::spec_of(c.module, c.sizes, c.named);
    // What has no parameters stands behind something that has.
    if (nn::make(spec)->parameters().empty())
      spec = nn::spec_of("sequential", {ValueList{nn::spec_of("linear", {int64_t{6}, int64_t{6}}), spec}});
    compare(train(spec, c.input, null0), train(spec, c.input, cpu));
  }
  for (const auto& m : nn::modules()) {
    INFO(m.name);
    CHECK((tried.contains(m.name) || without_parameters.contains(m.name)));
  }
}

TEST_CASE("every optimizer steps on the null device as on the CPU, in float32 and bfloat16") {
  testing::install_null_device();
  for (const auto& o : optim::optimizers())
    for (const DType dtype : {float32, float64, bfloat16}) {
      INFO(o.name << " in " << name(dtype));
      const Value spec =
          nn::spec_of("linear", {int64_t{6}, int64_t{3}}, {{"bias", o.name != "muon"}});  // matrices alone
      compare(train(spec, some({4, 6}, 1), null0, std::string(o.name), dtype),
              train(spec, some({4, 6}, 1), cpu, std::string(o.name), dtype));
    }
}

TEST_CASE("an optimizer goes on where its module moves to") {
  testing::install_null_device();
  const auto run = [](bool moves) {
    Generator g(1);
    nn::Linear net(6, 3);
    net.reset(g);
    optim::AdamW steps(net.parameters(), {.lr = 0.1});
    for (int i = 0; i < 4; ++i) {
      if (moves) net.to(std::vector<Device>{cpu, null0, null1, cpu}[static_cast<size_t>(i)]);
      net.zero_grad();
      autograd::backward(sum(square(net(some({4, 6}, 5).to(net.weight.device())))));
      steps.step();
    }
    return net.weight.detach().clone();
  };
  CHECK(bit_equal(run(true), run(false)));
}

TEST_CASE("norms, clipping and loss scaling work on the null device") {
  testing::install_null_device();
  const auto run = [](Device device) {
    Tensors grads;
    for (uint64_t i = 0; i < 3; ++i) grads.push_back(some({5, 7}, i).to(device));
    grads.push_back(Tensor());
    std::vector<double> out = optim::sizes_of(grads, optim::Size::squares);
    for (const double size : optim::sizes_of(grads, optim::Size::largest)) out.push_back(size);
    for (const double finite : optim::sizes_of(grads, optim::Size::finite)) out.push_back(finite);
    out.push_back(optim::clip_norm_(grads, 0.5));
    optim::clip_value_(grads, 0.01);
    optim::LossScaler scaler;
    out.push_back(scaler.unscale_(grads));
    for (const Tensor& g : grads)
      if (g.defined()) {
        CHECK(g.device() == device);
        for (const double v : g.to_vector<double>()) out.push_back(v);
      }
    return out;
  };
  CHECK(run(null0) == run(cpu));
  Tensors both{some({5}, 1), some({5}, 2).to(null0), some({5}, 3)};
  const std::vector<double> sizes = optim::sizes_of(both, optim::Size::squares);
  CHECK(sizes[1] == optim::sum_of_squares(some({5}, 2)));
  CHECK(sizes[2] == optim::sum_of_squares(some({5}, 3)));
}

TEST_CASE("a checkpoint written from the null device is read on either") {
  testing::install_null_device();
  const testing::Folder folder;
  const std::string path = (folder.path / "net.safetensors").string();
  nn::Linear net(6, 3), there(6, 3), here(6, 3);
  net.to(null0);
  datasets::write_safetensors(path, net.state_dict());
  there.to(null1);
  there.load_state_dict(datasets::Safetensors(path).tensors());
  here.load_state_dict(datasets::Safetensors(path).tensors());
  CHECK(there.weight.device() == null1);
  CHECK(bit_equal(there.weight, net.weight));
  CHECK(bit_equal(here.bias, net.bias));
  const optim::Adam steps(net.parameters());
  optim::Adam loaded(there.parameters());
  loaded.load_state(steps.state());
}

TEST_CASE("anomaly checks and hooks see tensors of the null device") {
  testing::install_null_device();
  Tensor x = tensor({1, 0}, float32).to(null0).detach();
  x.requires_grad_();
  {
    const AnomalyGuard on(Anomaly::nan);
    CHECK_THAT(testing::text_of([&] { (void)log(mul(x, -1.0)); }), Catch::Contains("NaN"));
  }
  int calls = 0;
  Tensor y = mul(x, 2.0);
  const auto hook = autograd::register_hook(y, [&](const Tensor& g) {
    ++calls;
    CHECK(g.device() == null0);
    return mul(g, 3.0);
  });
  const Tensor z = autograd::checkpoint([](const Tensor& in) { return square(in); }, y);
  autograd::backward(sum(z));
  CHECK(calls == 1);
  CHECK(x.grad().device() == null0);
  CHECK(x.grad().to_vector<float>() == std::vector<float>{24, 0});
}
