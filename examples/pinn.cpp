// A physics-informed network: no data, only an equation. It finds the wave that keeps its shape in shallow
// water (Korteweg and de Vries 1895), u''' = (c - 6 u) u', whose solution is c / 2 sech^2(sqrt(c) x / 2). The
// network lies on two workers, and its three derivatives in x run through the calls between them, recorded,
// so that the loss has gradients. Alone (`pinn`), or `troupe run -n 3 pinn`.
#include <cmath>

#include <troupe/tools/draw/chart.h>
#include <troupe/tools/flags/progress.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

struct Half : Actor {  // two layers of the network, in float64
  Half(int64_t in, int64_t width, int64_t out, uint64_t seed) {
    Generator random(seed);
    net.add(nn::Linear(in, width, random)).add(nn::Tanh()).add(nn::Linear(width, out, random));
    if (out != 1) net.add(nn::Tanh());
    net.to(float64);
  }
  Tensor forward(Tensor x) { return net(x); }
  nn::Sequential net;
  static constexpr auto remote = methods<&Half::forward>;
};

Tensor column(const std::vector<double>& x) { return tensor(x, float64).reshape({std::ssize(x), 1}); }

int main(int argc, char** argv) {
  tools::Flags flags("pinn", "Solves a differential equation of third order with a network on two workers.");
  auto& steps = flags.whole("--steps", 3000, "of Adam", {1, 1e7});
  auto& points = flags.whole("--points", 64, "places at which the equation is asked for", {3, 1e6});
  auto& width = flags.whole("--width", 24, "of the hidden layers", {1, 4096});
  auto& c = flags.number("--speed", 4, "of the wave: higher ones are narrower", {0.1, 100});
  auto& reach = flags.number("--reach", 4, "the equation is solved from -reach to reach", {0.1, 100});
  auto& lr = flags.number("--lr", 0.01, "learning rate at the start; it falls to zero by a cosine", {0, 100});
  auto& seed = flags.seed("of the weights");
  auto& picture = flags.picture("--chart", "pinn.svg", "picture of the solution beside the exact one (SVG)");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("largest error <= 0.02").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto exact = [&](double x) { return c / 2 / std::pow(std::cosh(std::sqrt(c) * x / 2), 2); };
    const auto names = cluster.workers();
    const auto lower = cluster.spawn<Half>(names[1 % names.size()], 1, width, width, seed);
    const auto upper = cluster.spawn<Half>(names[2 % names.size()], width, width, 1, seed + 1);
    optim::Distributed<optim::Adam> optimizer({lower, upper}, {.lr = lr});
    optim::Scheduler rate(optimizer, optim::cosine(steps));

    std::vector<double> places;
    for (int64_t i = 0; i < points; ++i)
      places.push_back(reach * (2 * static_cast<double>(i) / static_cast<double>(points - 1) - 1));
    const std::vector<double> known{-reach, 0, reach};  // where the solution is given: three, for an equation
                                                        // of third order
    const Tensor value = column({exact(-reach), exact(0), exact(reach)}), at_known = column(known);
    tools::Progress bar({.total = steps});
    Job job(cluster);
    for (const int64_t step : job.steps(steps)) {
      autograd::Context context(cluster);
      const Tensor x = column(places).requires_grad_();
      const auto derivative = [&](const Tensor& of) {
        return context.grad({of.sum()}, {x}, {}, {.create_graph = true})[0];
      };
      const Tensor u = upper(lower(x)).get(), ux = derivative(u), uxxx = derivative(derivative(ux));
      const Tensor equation = uxxx - (c - 6 * u) * ux, given = upper(lower(at_known)).get() - value;
      const Tensor loss = equation.square().mean() / (c * c) + 10 * given.square().sum();
      context.backward(loss);
      optimizer.step(context), rate.step();
      bar.update(step + 1, {{"loss", loss.item()}}, points);
    }
    bar.finish();

    NoGradGuard no_grad;
    tools::Series network{.name = "network"}, truth{.name = "exact"};
    double worst = 0;
    for (int i = 0; i <= 400; ++i) truth.add(reach * (i - 200) / 200, exact(reach * (i - 200) / 200));
    const auto found = upper(lower(column(truth.x))).get().to_vector<double>();
    for (size_t i = 0; i < found.size(); ++i) {
      network.add(truth.x[i], found[i]);
      worst = std::max(worst, std::abs(found[i] - truth.y[i]));
    }
    std::printf("largest error %.4f of a wave of height %.3g after %ld steps; picture: %s\n", worst, c / 2,
                static_cast<long>(steps), picture.c_str());
    tools::write_chart(picture, {.title = "A wave in shallow water, from its equation alone",
                                 .x_label = "x",
                                 .left_label = "u",
                                 .series = {truth, network}});
  };
  return launch(train, {.checkpoints = saved});
}
