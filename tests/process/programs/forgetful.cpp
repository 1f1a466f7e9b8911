// A job with state in a driver's variable and in an actor's member, which it may forget to keep.
#include "tools/program.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Shifted : Actor {  // a line, shifted by how often it was asked
  explicit Shifted(bool forgets) : line(2, 1) {
    if (!forgets) keep.emplace("calls", calls);
  }
  Tensor forward(Tensor x) { return line(x) + 0.01 * static_cast<double>(++calls); }
  nn::Linear line;
  int64_t calls = 0;
  std::optional<Keep> keep;
  static constexpr auto remote = methods<&Shifted::forward>;
};

}  // namespace

int main(int argc, char** argv) {
  tools::Flags flags("forgetful", "Forgets what it should keep.");
  auto& forgets = flags.text("--forgets", "nothing", "what has no Keep",
                             {"nothing", "variable", "member", "everything"});  // everything: nothing repeats
  auto& steps = flags.whole("--steps", 40, "of its loop", {1, 1e6});
  if (auto code = flags.parse(argc, argv)) return *code;
  return launch([&](Cluster& cluster) {
    const auto shifted = cluster.spawn<Shifted>("w1", forgets == "member");
    optim::Distributed<optim::Adam> optimizer({shifted}, {.lr = 0.01});
    int64_t asked = 0;
    std::optional<Keep> keep;
    if (forgets != "variable") keep.emplace("asked", asked);
    if (forgets == "everything")
      asked = std::chrono::steady_clock::now().time_since_epoch().count() % 1'000'000;
    double last = 0;
    Job job(cluster);
    for ([[maybe_unused]] const int64_t step : job.steps(steps)) {
      autograd::Context context(cluster);
      const Tensor loss = (shifted(ones({1, 2})).get() - 0.1 * static_cast<double>(++asked)).square().mean();
      context.backward(loss);
      optimizer.step(context);
      last = loss.item();
    }
    std::printf("loss %.9f\n", last);
  });
}
