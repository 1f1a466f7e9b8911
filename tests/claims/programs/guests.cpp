// Several programs on one cluster. Launched, it is the cluster, whose own program does nothing. As
// `guests JOB WHAT [WORKER...]`, or with TROUPE_ATTACH, it is one that comes as a guest.
#include "troupe/claim.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "actors/cell/interceptor.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Half : Actor {
  Half(int64_t in, int64_t out) : fc(in, out) {}
  Tensor forward(Tensor x) { return tanh(fc(x)); }
  /// Has the other half compute with what this one has: the worker there is called by this one.
  Task<Tensor> through(RRef<Half> next, Tensor x) {
    const auto there = next(tanh(fc(x)));
    co_return co_await there;
  }
  void keep(RRef<Half> other) { kept = other; }
  Task<Tensor> sum(Group group) {
    const auto all = group.all_reduce(fc.weight.detach() * 0.0 + 1.0, {.tag = "sum"});
    co_return co_await all;
  }
  void die() { _exit(1); }
  nn::Linear fc;
  RRef<Half> kept;
  Tensor ballast = zeros({1 << 20});
  static constexpr auto remote = methods<&Half::forward, &Half::through, &Half::keep, &Half::sum, &Half::die>;
};

/// Ends this process by SIGKILL as it is about to send for the n-th time.
struct Mortal final : internal::actors::Interceptor {
  explicit Mortal(int64_t n) : left(n) {}
  void outgoing_call(const internal::actors::CallerState&, internal::net::Call&) override {
    if (--left == 0) raise(SIGKILL);
  }
  std::atomic<int64_t> left;
};

void say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

/// A model in two parts, which hold each other, and have names; each step goes by way of both workers.
void train(Cluster& cluster, const std::vector<std::string>& workers, int64_t steps) {
  manual_seed(7);
  auto a = cluster.spawn<Half>(workers[0], 4, 8), b = cluster.spawn<Half>(workers[1], 8, 8);
  auto c = cluster.spawn<Half>(workers[0], 8, 1);
  a.call<&Half::keep>(b).get(), b.call<&Half::keep>(a).get();
  cluster.set_name(a, "first-of-" + std::to_string(getpid())).get();
  const Group pair(std::vector{a, c});
  const auto one = a.call<&Half::sum>(pair);
  optim::Distributed<optim::Adam> optimizer({a, b, c}, {.lr = 0.02});
  for (int64_t i = 0; i < steps; ++i) {
    autograd::Context step(cluster);
    const Tensor x = rand({16, 4});
    const Tensor loss = mse_loss(c(a.call<&Half::through>(b, x)).get(), sum(x, {1}, true) * 0.25);
    step.backward(loss);
    optimizer.step(step);
    std::printf("loss %ld %a\n", static_cast<long>(i), static_cast<double>(loss.item()));
    if (i == 3) say("trains");
  }
}

int guest(const std::string& job, const std::string& what, const std::vector<std::string>& workers) {
  const auto cluster = attach(job);
  if (what.starts_with("die"))
    cluster->worker().add_extension(std::make_unique<Mortal>(std::stol(what.substr(3))));
  if (what == "unclaimed") {
    auto a = cluster->spawn<Half>(workers[0], 4, 8);
    const autograd::Context step(*cluster);
    (void)a(zeros({1, 4})).get();
    return 0;
  }
  if (what == "wait") say("wants");
  const bool share = what.starts_with("share");
  const Claim claim = std::isdigit(workers[0][0]) ? Claim(*cluster, std::stoul(workers[0]))
                                                  : Claim(*cluster, workers, {.share = share});
  std::string text = "claimed";
  for (const auto& name : claim.workers()) text += " " + name;
  say(text.c_str());
  if (what == "train" || what == "share") train(*cluster, claim.workers(), 30);
  if (what.ends_with("on")) train(*cluster, claim.workers(), int64_t{1} << 40);
  if (what.starts_with("die")) train(*cluster, claim.workers(), 2);
  if (what == "hold" || what == "wait") pause();
  if (what == "kill") {
    auto a = cluster->spawn<Half>(claim.workers()[0], 4, 8);
    a.call<&Half::die>().get();
  }
  if (what == "spawn") cluster->spawn<Half>("w2", 4, 8).ready().get();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    return launch([&](Cluster& cluster) {
      if (std::getenv("TROUPE_ATTACH")) {
        const Claim claim(cluster, 2);
        return train(cluster, claim.workers(), 30);
      }
      const bool ends = argc == 2 && std::string(argv[1]) == "ends";
      if (argc == 2 && !ends)
        (void)cluster.spawn_named<Half>(std::string(argv[1]) + "/own", 1, 1).ready().get();
      std::printf("job %s\n", std::getenv("TROUPE_JOB"));
      say("planted");
      while (ends && !cluster.metrics("w1")["contexts"]) usleep(1000);
      if (ends) return;
      Promise<void> never;
      never.future().wait();
    });
  }
  try {
    return guest(argv[1], argv[2], {argv + 3, argv + argc});
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
