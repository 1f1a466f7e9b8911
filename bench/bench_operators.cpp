// Single operators on 256 x 256 numbers, which stay in cache, forward and with their gradients:
// `bench_operators`. In nanoseconds per number; torch_operators.py prints the same lines for PyTorch.
#include "bench/measure.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

constexpr int64_t kSide = 256;

struct Inputs {
  Generator random{0};
  Tensor x = leaf({kSide, kSide}), y = leaf({kSide, kSide}), row = leaf({kSide}), column = leaf({kSide, 1});
  Tensor positive = (ops::abs(leaf({kSide, kSide})) + 0.1).detach().requires_grad_();
  Tensor image = leaf({4, 16, 32, 32}), channels = leaf({16});
  Tensor mask = ops::gt(x, y), ids = ops::argmax(x, 1);
  Tensor unit = ops::sigmoid(y).detach();

  Tensor leaf(const Shape& shape) { return ops::randn(shape, random).requires_grad_(); }
};

struct Case {
  const char* name;
  std::function<Tensor(const Inputs&)> f;
};

#define CASE(name, expression)                       \
  {                                                  \
    name, [](const Inputs& i) { return expression; } \
  }

// With their gradients.
const Case kDifferentiable[] = {
    CASE("add", i.x + i.y),
    CASE("add_row", i.x + i.row),
    CASE("add_column", i.x + i.column),
    CASE("mul", i.x* i.y),
    CASE("mul_scalar", i.x * 2.0),
    CASE("div", i.x / i.positive),
    CASE("pow", ops::pow(i.positive, 2.5)),
    CASE("neg", -i.x),
    CASE("abs", ops::abs(i.x)),
    CASE("exp", ops::exp(i.x)),
    CASE("log", ops::log(i.positive)),
    CASE("log1p", ops::log1p(i.positive)),
    CASE("sqrt", ops::sqrt(i.positive)),
    CASE("rsqrt", ops::rsqrt(i.positive)),
    CASE("sin", ops::sin(i.x)),
    CASE("cos", ops::cos(i.x)),
    CASE("erf", ops::erf(i.x)),
    CASE("clamp", ops::clamp(i.x, -1, 1)),
    CASE("where", ops::where(i.mask, i.x, i.y)),
    CASE("masked_fill", ops::masked_fill(i.x, i.mask, 0)),
    CASE("relu", ops::relu(i.x)),
    CASE("leaky_relu", ops::leaky_relu(i.x)),
    CASE("elu", ops::elu(i.x)),
    CASE("softplus", ops::softplus(i.x)),
    CASE("gelu", ops::gelu(i.x)),
    CASE("silu", ops::silu(i.x)),
    CASE("tanh", ops::tanh(i.x)),
    CASE("sigmoid", ops::sigmoid(i.x)),
    CASE("sum", ops::sum(i.x)),
    CASE("sum_rows", ops::sum(i.x, {1})),
    CASE("sum_columns", ops::sum(i.x, {0})),
    CASE("mean", ops::mean(i.x)),
    CASE("amax", ops::amax(i.x, {1})),
    CASE("prod", ops::prod(i.positive, {1})),
    CASE("var", ops::var(i.x, {1})),
    CASE("norm", ops::norm(i.x)),
    CASE("logsumexp", ops::logsumexp(i.x, {1})),
    CASE("cumsum", ops::cumsum(i.x, 1)),
    CASE("softmax", ops::softmax(i.x, 1)),
    CASE("softmax_columns", ops::softmax(i.x, 0)),
    CASE("log_softmax", ops::log_softmax(i.x, 1)),
    CASE("layer_norm", ops::layer_norm(i.x, i.row.shape(), i.row, i.row)),
    CASE("group_norm", ops::group_norm(i.image, 4, i.channels, i.channels, 1e-5)),
    CASE("cross_entropy", ops::cross_entropy(i.x, i.ids)),
    CASE("mse_loss", ops::mse_loss(i.x, i.y)),
    CASE("l1_loss", ops::l1_loss(i.x, i.y)),
    CASE("binary_cross_entropy_with_logits", ops::binary_cross_entropy_with_logits(i.x, i.unit)),
    CASE("transpose_contiguous", ops::contiguous(ops::transpose(i.x, 0, 1))),
    CASE("cat", ops::cat({i.x, i.y}, 0)),
    CASE("roll", ops::roll(i.x, {3}, {1})),
    CASE("repeat", ops::repeat(i.x, {2, 1})),
    CASE("index_select", ops::index_select(i.x, 0, i.ids)),
    CASE("max_pool2d", ops::max_pool2d(i.image, {2, 2})),
    CASE("avg_pool2d", ops::avg_pool2d(i.image, {2, 2})),
    CASE("sort", ops::sort(i.x, 1).values),
    CASE("topk", ops::topk(i.x, 8, 1).values),
};
const Case kOthers[] = {
    CASE("gt", ops::gt(i.x, i.y)),
    CASE("isnan", ops::isnan(i.x)),
    CASE("argmax", ops::argmax(i.x, 1)),
};

#undef CASE

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_operators", "Times single operators, forward and with their gradients.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  Inputs inputs;
  const auto emit = [&](const std::string& name, const std::function<void()>& step) {
    bench.emit(name, bench.median_us(step, 30) * 1e3 / (kSide * kSide), "ns");
  };
  const auto forward = [&](const Case& c) {
    emit(std::string(c.name) + "_ns", [&] {
      const NoGradGuard off;
      (void)c.f(inputs);
    });
  };
  for (const Case& c : kDifferentiable) {
    forward(c);
    const Tensor gradient = ops::randn(c.f(inputs).shape(), inputs.random);
    emit(std::string(c.name) + "_gradient_ns", [&] {
      const Tensor y = c.f(inputs);
      autograd::backward(y, gradient);
      for (Tensor t :
           {inputs.x, inputs.y, inputs.row, inputs.column, inputs.positive, inputs.image, inputs.channels})
        t.set_grad({});
    });
  }
  for (const Case& c : kOthers) forward(c);
}
