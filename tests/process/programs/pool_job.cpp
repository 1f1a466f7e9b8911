// A pool of actors whose workers are killed from outside, beside a loop with checkpoints.
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "actors/worker/worker.h"
#include "troupe/pool.h"
#include "troupe/replicas.h"
#include "troupe/troupe.h"

using namespace troupe;
using parallel::split;

namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

struct Roller : Actor {
  explicit Roller(int64_t base) : base_(base) {
    if (const std::string no = variable("NOT_ON", ""); !no.empty() && frame().worker->name() == no)
      throw_invalid("a Roller of " + no + " is not made");
    std::printf("pid %s %d\n", frame().worker->name().c_str(), getpid());
    std::fflush(stdout);
  }
  void load(int64_t version) { version_ = version; }
  int64_t run(int64_t x) {
    if (version_ < 0) throw_invalid("a call came before on_start");
    return base_ + x * x;
  }
  int64_t version() { return version_; }
  static constexpr auto remote = methods<&Roller::load, &Roller::run, &Roller::version>;

 private:
  int64_t base_, version_ = -1;
};

struct Learner : nn::ModuleActor<nn::Linear> {
  Learner() : ModuleActor(4, 1) {}
  Tensor loss(Tensor x) { return mean(square(net(x))); }
  static constexpr auto remote = methods<&Learner::loss>;
};

void train(Cluster& cluster) {
  const auto all = cluster.workers();
  const bool learns = variable("LEARN", "0") == "1";
  PoolOptions options{.size = 4};
  if (learns) options.workers = {all.begin() + 3, all.end()};
  if (variable("NOT_ON", "") != "") options.size = 1, options.workers = {variable("NOT_ON", "")};
  Pool<Roller> pool(cluster, options, int64_t{100});
  int64_t version = 0;
  pool.on_start([&](const RRef<Roller>& r) { r.call<&Roller::load>(version).get(); });
  if (variable("AGAIN", "1") == "1") pool.again<&Roller::run>(20).again<&Roller::version>(20);
  std::optional<parallel::DataParallel<Learner>> net;
  std::optional<optim::Distributed<optim::SGD>> optimizer;
  if (learns) {
    net.emplace(cluster.here(), Group(cluster, {"w1", "w2"}));
    optimizer.emplace(*net, optim::SGD::Options{.lr = 0.1});
  }
  Job job(cluster);
  const int64_t steps = std::stoll(variable("STEPS", "40"));
  for (const int64_t step : job.steps(steps)) {
    std::vector<int64_t> tasks(50);
    for (size_t i = 0; i < tasks.size(); ++i) tasks[i] = step + static_cast<int64_t>(i);
    std::vector<int64_t> came(tasks.size(), -1);
    job.attempt([&] {
      for (const auto& [index, value] : pool.as_they_come<&Roller::run>(tasks)) came[index] = value;
      if (!net) return;
      autograd::Context context(cluster);
      context.backward(net->mean<&Learner::loss>(split(ones({4, 4}))).get());
      optimizer->step(context);
    });
    for (size_t i = 0; i < tasks.size(); ++i)
      if (came[i] != 100 + tasks[i] * tasks[i]) throw_invalid("task " + std::to_string(i) + " is wrong");
    for (size_t i = 0; i < pool.size(); ++i) {  // a slot is whoever is there now
      const int64_t seen = pool[i].call<&Roller::version>().get();
      if (seen != version) throw_invalid("member " + std::to_string(i) + " has " + std::to_string(seen));
    }
    std::printf("step %lld\n", static_cast<long long>(step));
    std::fflush(stdout);
  }
  int64_t restarts = 0;
  for (size_t i = 0; i < pool.size(); ++i) restarts += pool[i].incarnation();
  std::printf("restarts %lld\n", static_cast<long long>(restarts));
}

}  // namespace

int main() {
  return launch(train, {.leak_check = LeakCheck::error,
                        .checkpoints = {.dir = variable("CHECKPOINTS", ""),
                                        .resume = std::getenv("CHECKPOINTS") != nullptr,
                                        .every = 4}});
}
