// Modules and optimizers with random options: ten steps from PyTorch's initial state end where PyTorch's end.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "autograd/autograd.h"
#include "core/base/error.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/options.h"
#include "tests/support/oracle.h"

using namespace troupe;
using namespace troupe::testing;
using nlohmann::json;

namespace {

Tensor tensor(const json& j) {
  const auto dims = j.at("shape").get<std::vector<int64_t>>();
  if (j.contains("dtype")) return troupe::tensor(j.at("data").get<std::vector<int64_t>>()).reshape(dims);
  return troupe::tensor(j.at("data").get<std::vector<double>>(), float64).reshape(dims);
}

Shape shape_of(const json& j) {
  const auto dims = j.get<std::vector<int64_t>>();
  return Shape{std::span<const int64_t>(dims)};
}

Tensor wave(double (*f)(double), double a, double b, const Shape& shape) {
  const Tensor t = empty(shape, float64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = f(a * static_cast<double>(i) + b);
  return t;
}

// A module of a draw, and how it is called.
struct Audited {
  std::shared_ptr<nn::Module> module;
  std::function<Tensor(const Tensors&)> call;
};

template <class L>
Audited layer(L made) {
  auto module = std::make_shared<L>(std::move(made));
  return {module, [module](const Tensors& in) { return (*module)(in[0]); }};
}

ops::Pair pair(const json& j) { return {j.at(0).get<int64_t>(), j.at(1).get<int64_t>()}; }

// Options of `j` by name; each must be asked for.
class Named {
 public:
  explicit Named(const json& j) : j_(j) {}
  ~Named() noexcept(false) {
    if (std::uncaught_exceptions() > 0) return;
    for (const auto& [name, value] : j_.items())
      if (!asked_.contains(name)) throw std::runtime_error("the test does not know the option " + name);
  }
  int64_t whole(const char* name) { return find(name)->get<int64_t>(); }
  template <class T>
  void set(const char* name, T& option) {
    if (const json* j = find(name)) option = j->is_null() ? T{} : value<T>(*j);
  }
  const json* find(const char* name) {
    asked_.insert(name);
    return j_.contains(name) ? &j_.at(name) : nullptr;
  }

 private:
  template <class T>
  static T value(const json& j) {
    if constexpr (std::is_same_v<T, std::optional<double>>)
      return j.get<double>();
    else if constexpr (std::is_same_v<T, ops::Pair>)
      return pair(j);
    else
      return j.get<T>();
  }
  const json& j_;
  std::set<std::string> asked_;
};

template <class L>
Audited recurrent(Named& n) {
  nn::RecurrentOptions o{.dtype = float64};
  n.set("layers", o.layers), n.set("bias", o.bias), n.set("batch_first", o.batch_first);
  return layer(L(n.whole("input"), n.whole("hidden"), o));
}

Audited make(const std::string& kind, const json& options) {
  Named n(options);
  if (kind == "linear") {
    bool bias = true;
    n.set("bias", bias);
    return layer(nn::Linear(n.whole("inputs"), n.whole("outputs"), bias, float64));
  }
  if (kind == "conv2d") {
    nn::Conv2dOptions o{.dtype = float64};
    n.set("stride", o.stride), n.set("padding", o.padding), n.set("dilation", o.dilation);
    n.set("groups", o.groups), n.set("bias", o.bias);
    return layer(nn::Conv2d(n.whole("inputs"), n.whole("outputs"), pair(*n.find("kernel")), o));
  }
  if (kind == "multihead_attention") {
    nn::MultiheadAttentionOptions o{.dtype = float64};
    n.set("bias", o.bias), n.set("causal", o.causal);
    auto module = std::make_shared<nn::MultiheadAttention>(n.whole("width"), n.whole("heads"), o);
    return {module, [module](const Tensors& in) {
              return in.size() == 3 ? (*module)(in[0], in[1], in[2]) : (*module)(in[0]);
            }};
  }
  if (kind == "transformer_encoder_layer") {
    nn::TransformerEncoderLayerOptions o{.dtype = float64};
    n.set("dim_feedforward", o.dim_feedforward), n.set("dropout", o.dropout),
        n.set("activation", o.activation);
    n.set("norm_first", o.norm_first), n.set("causal", o.causal);
    return layer(nn::TransformerEncoderLayer(n.whole("width"), n.whole("heads"), o));
  }
  if (kind == "embedding") return layer(nn::Embedding(n.whole("count"), n.whole("width"), float64));
  if (kind == "embedding_bag") {
    std::string mode = "mean";
    n.set("mode", mode);
    auto module = std::make_shared<nn::EmbeddingBag>(n.whole("count"), n.whole("width"), mode, float64);
    return {module, [module](const Tensors& in) {
              return in.size() == 2 ? (*module)(in[0], in[1]) : (*module)(in[0]);
            }};
  }
  if (kind == "group_norm") {
    nn::GroupNormOptions o{.dtype = float64};
    n.set("eps", o.eps), n.set("affine", o.affine);
    return layer(nn::GroupNorm(n.whole("groups"), n.whole("channels"), o));
  }
  if (kind == "batch_norm2d") {
    nn::BatchNorm2dOptions o{.dtype = float64};
    n.set("eps", o.eps), n.set("momentum", o.momentum), n.set("affine", o.affine);
    n.set("track_running_stats", o.track_running_stats);
    return layer(nn::BatchNorm2d(n.whole("channels"), o));
  }
  if (kind == "layer_norm") {
    nn::LayerNormOptions o{.dtype = float64};
    n.set("eps", o.eps), n.set("bias", o.bias), n.set("elementwise_affine", o.elementwise_affine);
    return layer(nn::LayerNorm(shape_of(*n.find("shape")), o));
  }
  if (kind == "rms_norm") {
    nn::RMSNormOptions o{.dtype = float64};
    n.set("eps", o.eps), n.set("elementwise_affine", o.elementwise_affine);
    return layer(nn::RMSNorm(shape_of(*n.find("shape")), o));
  }
  if (kind == "lstm") return recurrent<nn::LSTM>(n);
  if (kind == "gru") return recurrent<nn::GRU>(n);
  throw std::runtime_error("the test does not know the module " + kind);
}

Tensors inputs_of(const json& draw, int step) {
  const json& into = draw.at("input");
  if (!into.contains("ids")) {
    Tensors out;
    for (const json& shape : into.at("shapes"))
      out.push_back(wave(std::cos, 0.7, 1.3 * step + 2.1 * static_cast<double>(out.size()), shape_of(shape)));
    return out;
  }
  const auto count = draw.at("module_options").at("count").get<int64_t>();
  const Tensor ids = empty(shape_of(into.at("ids")), int64);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.data<int64_t>()[i] = (7 * i + 3 * step) % count;
  if (!into.contains("offsets")) return {ids};
  return {ids, troupe::tensor(into.at("offsets").get<std::vector<int64_t>>())};
}

Tensor activated(const json& draw, const Tensor& y) {
  const std::string name = draw.value("activation", "");
  if (name == "relu") return nn::ReLU()(y);
  if (name == "tanh") return nn::Tanh()(y);
  if (name == "sigmoid") return nn::Sigmoid()(y);
  if (name == "gelu") return nn::GELU()(y);
  REQUIRE(name == "");
  return y;
}

double distance(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return HUGE_VAL;
  const auto x = ops::to(a.detach(), float64).to_vector<double>(),
             y = ops::to(b, float64).to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (const double d = std::abs(x[i] - y[i]); !(d <= worst)) worst = d;
  return worst;
}

// The largest difference of a parameter, a buffer, or the result in use.
double follow(const json& draw) {
  const Audited audited = make(draw.at("module"), draw.at("module_options"));
  std::map<std::string, Tensor> start;
  for (const auto& [name, t] : draw.at("start").items()) start[name] = tensor(t);
  audited.module->load_state_dict(start);
  const auto optimizer =
      optim::make(draw.at("optimizer"), to_options(draw.at("options")), audited.module->parameters());
  for (int step = 0; step < 10; ++step) {
    const Tensor y = activated(draw, audited.call(inputs_of(draw, step)));
    const Tensor loss = ops::mse_loss(y, wave(std::sin, 0.9, 0.5 * step, y.shape()));
    optimizer->zero_grad();
    autograd::backward(draw.at("options").value("maximize", false) ? ops::neg(loss) : loss);
    optimizer->step();
  }
  audited.module->eval();
  const NoGradGuard no_grad;
  double worst = distance(activated(draw, audited.call(inputs_of(draw, 0))), tensor(draw.at("eval")));
  const auto after = audited.module->state_dict();
  REQUIRE(after.size() == draw.at("after").size());
  for (const auto& [name, t] : draw.at("after").items())
    if (const double d = distance(after.at(name), tensor(t)); !(d <= worst)) worst = d;
  return worst;
}

}  // namespace

TEST_CASE("ten steps of every module under every optimizer, options at random, end where PyTorch's end",
          "[oracle][audit]") {
  const json file = read_oracle("audit.json");
  std::map<std::string, int> modules, optimizers;
  int draws = 0;
  double worst = 0;
  for (const json& draw : file.at("draws")) {
    ++draws, ++modules[draw.at("module")], ++optimizers[draw.at("optimizer")];
    INFO("draw " << draws - 1 << ": " << draw.at("module") << " " << draw.at("module_options") << " on "
                 << draw.at("input") << ", " << draw.value("activation", "no activation") << ", "
                 << draw.at("optimizer") << " " << draw.at("options"));
    const double d = follow(draw);
    CHECK(d <= 1e-10);
    worst = std::max(worst, d);
  }
  WARN(draws << " draws, the largest difference is " << worst);
  CHECK(draws >= 200);
  CHECK(modules.size() == 12);
  CHECK(optimizers.size() == 8);
}
