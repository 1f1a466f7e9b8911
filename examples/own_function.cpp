// Functions and operators of one's own, in an actor on another worker: a network whose activations are
// rounded to 1/8 learns y = sin(3x). Alone, or `troupe run -n 2 own_function`.
#include <cmath>
#include <cstdio>

#include <troupe/autograd/opcheck.h>
#include <troupe/operators.h>
#include <troupe/tools/flags/flags.h>
#include <troupe/troupe.h>
using namespace troupe;

// Rounds to 1/levels. That is flat almost everywhere: the gradient goes straight through where |x| <= 1.
struct Rounded : autograd::Function<Rounded> {
  static Tensor forward(Ctx& ctx, Tensor x, int levels) {
    ctx.save_for_backward({x});
    return round(clamp(x, -1, 1) * levels) / levels;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    const Tensor inside = ctx.saved_tensors()[0].abs().le(1);
    return {grads[0] * inside.to(grads[0].dtype()), Tensor()};  // none for the number of levels
  }
};

// x + sin(ax)^2 / a, an operator with a kernel for the CPU.
const ops::Op kSnake{
    .name = "snake",
    .text = "x + sin(ax)^2 / a of each element.",
    .attrs = {{"a", 1.0}},
    .shape = ops::floating_unary,
    .saves_inputs = 1,
    .gradient = [](const ops::Backward& b) -> Tensors {
      return {b.grads[0] * (sin(b.in[0] * (2 * b.attrs.number("a"))) + 1)};
    },
    .samples = []() -> std::vector<ops::Sample> {
      return {{{tensor({{-1, 0.5}, {2, 3}}, float64)}, {{"a", 1.5}}}, {{zeros({0, 3}, float64)}}};
    }};

template <class T>
void snake_of(const Tensor& x, const Tensor& y, double a) {
  const Tensor in = x.contiguous_data();  // inputs have any strides
  for (int64_t i = 0; i < in.numel(); ++i) {
    const double s = std::sin(a * in.data<T>()[i]);
    y.data<T>()[i] = static_cast<T>(in.data<T>()[i] + s * s / a);
  }
}

void snake_on_cpu(const ops::Call& c, Tensors& out) {
  const double a = c.attrs.number("a");
  c.in[0].dtype() == float32 ? snake_of<float>(c.in[0], out[0], a) : snake_of<double>(c.in[0], out[0], a);
}

Tensor snake(const Tensor& x, double a) { return ops::apply1(kSnake, {x}, {{"a", a}}); }

struct Net : Actor {
  Tensor forward(Tensor x) { return out(Rounded::apply(hidden(snake(in(x), 2.0)), 8)); }
  nn::Linear in{1, 32}, hidden{32, 32}, out{32, 1};
  static constexpr auto remote = methods<&Net::forward>;
};

int main(int argc, char** argv) {
  tools::Flags flags("own_function", "Trains with a function and an operator of its own, on another worker.");
  auto& steps = flags.whole("--steps", 600, "of Adam", {1, 1e7});
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("loss <= 0.005", "in its last step").parse(argc, argv)) return *code;
  ops::register_kernel(kSnake, Device::Kind::cpu, snake_on_cpu);
  for (const std::string& wrong : autograd::opcheck(kSnake)) return std::puts(wrong.c_str()), 1;

  const auto train = [&](Cluster& cluster) {
    auto net = cluster.spawn<Net>("w1");
    optim::Distributed<optim::Adam> optimizer({net}, {.lr = 0.005});
    Job job(cluster);
    for (const int64_t i : job.steps(steps + 1)) {
      Tensor x = ops::rand({64, 1}), y = sin(3.0 * x);
      autograd::Context step(cluster);
      Tensor loss = mse_loss(net(x).get(), y);
      step.backward(loss);  // runs both gradient rules, where the net is
      optimizer.step(step);
      if (i % 200 == 0 || i == steps) std::printf("step %4ld  loss %.5f\n", i, loss.item());
    }
  };
  return launch(train, {.checkpoints = saved});
}
