// bfloat16 and float16 between workers: by casts around a call, and by OnWire in a method's signature.
#include <catch2/catch.hpp>

#include "autograd/hooks.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;

namespace {

// y = x w in float32; remembers in which dtype things came.
struct Layer : Actor {
  explicit Layer(Tensor start) : w(start.detach().clone_data()) { w.requires_grad_(); }
  Tensor forward(Tensor x) {
    arrived = std::string(name(x.dtype()));
    autograd::register_hook(x, [this](const Tensor& g) -> Tensor {
      gradient_left = std::string(name(g.dtype()));
      return {};
    }).keep();
    return mul(x.to(float32), w).to(x.dtype());
  }
  OnWire<bfloat16> compact(OnWire<bfloat16> x) {
    arrived = std::string(name(x.tensor.dtype()));
    return mul(x, w);
  }
  std::vector<std::string> seen() { return {arrived, gradient_left}; }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  std::string arrived, gradient_left;
  static constexpr auto remote = methods<&Layer::forward, &Layer::compact, &Layer::seen, &Layer::gradient>;
};

Tensor vec(std::vector<float> v) { return tensor(v); }
double rounded(double x, DType t) { return tensor(x, t).item(); }

}  // namespace

TEST_CASE("tensors cast around a call travel in the half dtype, and so do their gradients") {
  for (const int workers : {1, 2})
    for (const DType t : {bfloat16, float16}) {
      auto cluster = Cluster::in_process(workers, hosting<Layer>());
      auto layer = cluster->spawn<Layer>("w" + std::to_string(workers - 1), vec({0.3f, 3}));
      Tensor x = vec({1.01f, 2});
      x.requires_grad_();
      autograd::Context context(*cluster);
      const Tensor y = layer.call<&Layer::forward>(x.to(t)).get();
      CHECK(y.dtype() == t);
      context.backward(y.to(float32).sum());
      CHECK(layer.call<&Layer::seen>().get() == std::vector<std::string>(2, std::string(name(t))));
      const Tensor g = context.grad(x);
      CHECK(g.dtype() == float32);
      CHECK(g.to_vector<double>() == std::vector<double>{rounded(0.3f, t), 3});
      const Tensor gw = layer.call<&Layer::gradient>().get();
      CHECK(gw.dtype() == float32);
      CHECK(gw.to_vector<double>()[0] == rounded(1.01f, t));
    }
}

TEST_CASE("OnWire rounds where a tensor leaves and gives float32 where it arrives, forward and backward") {
  for (const int workers : {1, 2}) {
    auto cluster = Cluster::in_process(workers, hosting<Layer>());
    auto layer = cluster->spawn<Layer>("w" + std::to_string(workers - 1), vec({0.3f, 3}));
    Tensor x = vec({1.01f, 2});
    x.requires_grad_();
    autograd::Context context(*cluster);
    const Tensor y = layer.call<&Layer::compact>(x).get();
    CHECK(y.dtype() == float32);
    const double product = static_cast<float>(rounded(1.01f, bfloat16)) * 0.3f;
    CHECK(y.to_vector<double>() == std::vector<double>{rounded(product, bfloat16), 6});
    context.backward((y * 1.01f).sum());
    CHECK(layer.call<&Layer::seen>().get()[0] == "float32");
    const double up = rounded(1.01f, bfloat16);  // the gradient of y on its way
    CHECK(context.grad(x).to_vector<double>() ==
          std::vector<double>{rounded(up * 0.3f, bfloat16), rounded(3 * up, bfloat16)});
    CHECK(layer.call<&Layer::gradient>().get().to_vector<double>()[1] == 2 * up);
  }
}

TEST_CASE("OnWire takes float32 only, says what it got otherwise, and passes undefined tensors on") {
  auto cluster = Cluster::in_process(2, hosting<Layer>());
  auto layer = cluster->spawn<Layer>("w1", vec({1}));
  NoGradGuard off;
  CHECK_THAT(testing::text_of([&] { layer.call<&Layer::compact>(zeros({1}, float64)).get(); }),
             Contains("[wire] to travel as bfloat16, a tensor must be float32, got float64 [1]"));
  CHECK_THAT(testing::text_of([&] { layer.call_by_name("compact", {Value(zeros({1}))}).get(); }),
             Contains("expected tensor bfloat16, got tensor float32 [1]"));
  CHECK_FALSE(Codec<OnWire<float16>>::from(Codec<OnWire<float16>>::to(Tensor())).tensor.defined());
}
