// Four processes, one of which kills itself at an exact point of a training step; then what is left of it,
// and another step among the others.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "tools/flags/flags.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Multiplies by its parameter, through the others that it is given; dies where it was told to.
struct Part : Actor {
  explicit Part(std::string where) : dies(std::move(where)), w(tensor({2, 3}, float32)) {
    w.requires_grad_();
    die_if("construction");
  }
  ~Part() override { die_if("release"); }
  Task<Tensor> forward(std::vector<RRef<Part>> others, Tensor x) {
    die_if("forward");
    Tensor h = ops::mul(x, w);
    if (dies == "backward")
      hooks.push_back(
          autograd::register_hook(h, [](const Tensor&) -> Tensor { return raise(SIGKILL), Tensor(); }));
    if (!others.empty()) {
      const RRef<Part> next = others.front();
      others.erase(others.begin());
      h = co_await next.call<&Part::forward>(others, h);
    }
    die_if("answer");
    co_return h;
  }
  void keep(RRef<Part> part) { kept.push_back(std::move(part)); }
  Tensor gradient() { return autograd::context_gradient(w); }
  void die() { raise(SIGKILL); }
  Task<void> wait() { co_await never.future(); }
  Tensors parameters() override {
    die_if("optimizer");
    return {w};
  }
  void die_if(const std::string& here) {
    if (dies == here) raise(SIGKILL);
  }
  std::string dies;
  Tensor w;
  std::vector<RRef<Part>> kept;
  std::vector<autograd::HookHandle> hooks;
  Promise<void> never;
  static constexpr auto remote =
      methods<&Part::forward, &Part::keep, &Part::gradient, &Part::die, &Part::wait>;
};

// Whether the driver calls one part after the other, so that results go straight from part to part; else each
// calls the next.
bool straight = false;

Future<Tensor> forward(const std::vector<RRef<Part>>& parts) {
  const Tensor x = tensor({1, 1}, float32);
  if (!straight)
    return parts[0].call<&Part::forward>(std::vector<RRef<Part>>(parts.begin() + 1, parts.end()), x);
  auto y = parts[0].call<&Part::forward>(std::vector<RRef<Part>>(), x);
  for (size_t i = 1; i < parts.size(); ++i)
    y = parts[i].call<&Part::forward>(std::vector<RRef<Part>>(), std::move(y));
  return y;
}

// A whole step through the parts. `between` runs after the forward pass, and
// `before_step` after the backward pass. True if the gradient of the last one is right.
bool step(
    Cluster& cluster, const std::vector<RRef<Part>>& parts, const std::function<void()>& between = [] {},
    const std::function<void()>& before_step = [] {}) {
  optim::Distributed<optim::SGD> optimizer(std::vector<AnyRef>(parts.begin(), parts.end()), {.lr = 0.5});
  autograd::Context context(cluster);
  const Tensor y = forward(parts).get();
  between();
  context.backward(y.sum());
  const auto gradient = parts.back().call<&Part::gradient>().get().to_vector<double>();
  before_step();
  optimizer.step(context);
  context.end().get();
  const double n = double(parts.size()) - 1;
  return gradient == std::vector<double>{std::pow(2, n), std::pow(3, n)};
}

void break_one(Cluster& cluster, const std::string& victim, const std::string& point) {
  std::vector<RRef<Part>> parts;
  for (const std::string name : {"w1", "w2", "w3"})
    parts.push_back(cluster.spawn<Part>(name, name == victim ? point : "nowhere"));
  auto& dying = parts[static_cast<size_t>(victim[1] - '1')];
  const auto die_at = [&](const std::string& here) {
    return [&, here] {
      if (point == here) dying.call<&Part::die>().get();
    };
  };
  if (point == "holding")  // the only reference to an actor of another worker
    dying.call<&Part::keep>(cluster.spawn<Part>(victim == "w3" ? "w1" : "w3", "nowhere")).get();
  die_at("holding")();
  step(cluster, parts, die_at("between"), die_at("step"));
  const auto waiting = cluster.spawn<Part>(victim, "nowhere").call<&Part::wait>();
  parts.clear();  // the last references: the actors are destroyed
  waiting.get();
}

// Waits until nothing is left on the workers that live; a leak hangs.
void all_zero(Cluster& cluster) {
  for (const auto& name : cluster.workers())
    for (const char* what :
         {"contexts", "send_nodes", "receive_nodes", "backward_passes", "owned_objects", "owned_references",
          "borrowed_references", "pending_references", "actors", "late_calls", "early_arguments"})
      while (cluster.metrics(name)[what] != 0) std::this_thread::yield();
}

void run(Cluster& cluster, const std::string& victim, const std::string& point) {
  const auto start = std::chrono::steady_clock::now();
  try {
    break_one(cluster, victim, point);
  } catch (const Error& e) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    say("error " + std::string(name(e.kind())) + " of " + e.worker());
    say("after " + std::to_string(took.count()) + " ms");
  }
  // Another worker may have noticed first, and its answer have come before our own link broke.
  for (bool lost = false; !lost; std::this_thread::yield()) {
    const auto living = cluster.workers();
    lost = std::find(living.begin(), living.end(), victim) == living.end();
  }
  all_zero(cluster);
  std::vector<RRef<Part>> parts;
  for (const auto& name : cluster.workers())
    if (name != "w0") parts.push_back(cluster.spawn<Part>(name, "nowhere"));
  say("goes on with " + std::to_string(parts.size()) + (step(cluster, parts) ? ": right" : ": wrong"));
  parts.clear();
  all_zero(cluster);
  say("nothing left");
}

}  // namespace

int main(int argc, char** argv) {
  std::string victim = "w1", point = "forward";
  tools::Flags flags("kill_points", "One worker kills itself, the others go on.");
  flags.add("--victim", victim, "who", {"w1", "w2", "w3"})
      .add("--point", point, "when",
           {"construction", "forward", "answer", "between", "backward", "optimizer", "step", "release",
            "holding"});
  flags.add("--straight", straight, "results go straight from part to part");
  if (auto code = flags.parse(argc, argv)) return *code;
  return launch(hosting<Part>(), [&](Cluster& cluster) { run(cluster, victim, point); });
}
