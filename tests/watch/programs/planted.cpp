// A job that is stuck, or trains on, for a reason that its first argument names; for who watches it from
// outside.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "troupe/groups.h"
#include "troupe/server.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Sleeper : Actor {
  int64_t nap() {
    std::mutex held;
    held.lock();
    for (;;) pause();  // until the process is killed
    return 1;
  }
  int64_t quick() { return getpid(); }
  static constexpr auto remote = methods<blocking<&Sleeper::nap>, &Sleeper::quick>;
};

struct Relay : Actor {
  Task<int64_t> ask(RRef<Sleeper> next) {
    const auto f = next.call<&Sleeper::nap>();
    co_return co_await f;
  }
  static constexpr auto remote = methods<&Relay::ask>;
};

// Each asks the next; what the last one waits for is set behind what the first one waits for.
struct Peer : Actor {
  Task<int64_t> round(std::vector<AnyRef> others, int64_t place) {
    if (place == static_cast<int64_t>(others.size())) {
      const auto end = over.future();
      co_return co_await end;
    }
    const auto f =
        others[static_cast<size_t>(place)].call("round", {internal::to_value(others), Value(place + 1)});
    const Value answer = co_await f;
    over.set(1);
    co_return 1;
  }
  Promise<int64_t> over;
  static constexpr auto remote = methods<&Peer::round>;
};

struct Rank : Actor {
  Task<Tensor> sum(Group group) {
    const auto f = group.all_reduce(ones({4}), {.tag = "planted"});
    co_return co_await f;
  }
  static constexpr auto remote = methods<&Rank::sum>;
};

struct Trainer : Actor {
  explicit Trainer(parallel::Served served) : client(served) {}
  Task<void> step() {
    const auto values = client.pull();
    const Tensors w = co_await values;
    const auto pushed = client.push({w[0] * 0.1});
    (void)co_await pushed;
  }
  parallel::Client client;
  static constexpr auto remote = methods<&Trainer::step>;
};

struct Half : Actor {
  Half(int64_t in, int64_t out) : fc(in, out) {}
  Tensor forward(Tensor x) { return tanh(fc(x)); }
  nn::Linear fc;
  static constexpr auto remote = methods<&Half::forward>;
};

// Two of these do the same, unless one has more rounds.
struct Mill : Actor {
  explicit Mill(int64_t rounds) : rounds(rounds) {}
  Tensor grind(Tensor x) {
    for (int64_t i = 0; i < rounds; ++i) x = tanh(matmul(x, x));
    return x;
  }
  int64_t process() { return getpid(); }
  int64_t rounds;
  static constexpr auto remote = methods<&Mill::grind, &Mill::process>;
};

struct Sink : Actor {
  int64_t take(Tensor x) { return x.numel(); }
  static constexpr auto remote = methods<&Sink::take>;
};

void ready() {
  std::printf("planted\n");
  std::fflush(stdout);
}

// Never returns: the program that watches ends the job.
template <class F>
void wait_for(const F& future) {
  ready();
  (void)future.wait();
}

void drive(Cluster& cluster, const std::string& what) {
  if (what == "train") {
    auto a = cluster.spawn<Half>("w1", 1, 8), b = cluster.spawn<Half>("w2", 8, 1);
    optim::Distributed<optim::Adam> optimizer({a, b}, {.lr = 0.01});
    for (int64_t i = 0;; ++i) {
      autograd::Context step(cluster);
      Tensor x = rand({16, 1});
      step.backward(mse_loss(b(a(x)).get(), sin(x)));
      optimizer.step(step);
      if (i == 10) ready();
    }
  }
  if (what == "equal" || what == "slow") {
    auto a = cluster.spawn<Mill>("w1", 4), b = cluster.spawn<Mill>("w2", what == "slow" ? 16 : 4);
    std::printf("pid %ld\n", static_cast<long>(b.call<&Mill::process>().get()));
    for (int64_t i = 0;; ++i) {
      const Tensor x = rand({64, 64});
      const auto first = a.call<&Mill::grind>(x), second = b.call<&Mill::grind>(x);
      (void)first.get(), (void)second.get();
      if (i == 10) ready();
    }
  }
  if (what == "link") {
    auto sink = cluster.spawn<Sink>("w1");
    sink.ready().get();
    ready();
    for (const Tensor x = zeros({16 << 20});;) (void)sink.call<&Sink::take>(x).get();
  }
  if (what == "group") {
    std::vector<RRef<Rank>> ranks;
    for (const auto& name : cluster.workers()) ranks.push_back(cluster.spawn<Rank>(name));
    const Group group(ranks);
    const auto first = ranks[0].call<&Rank::sum>(group), second = ranks[1].call<&Rank::sum>(group);
    return wait_for(first);
  }
  if (what == "server") {
    const auto served = parallel::serve(cluster.here(), {"w0"}, {ones({3})}, {.trainers = 2});
    auto quick = cluster.spawn<Trainer>("w1", served), idle = cluster.spawn<Trainer>("w2", served);
    quick.call<&Trainer::step>().get();
    return wait_for(quick.call<&Trainer::step>());
  }
  if (what == "ring") {
    std::vector<AnyRef> peers;
    for (const char* on : {"w1", "w2", "w1"})
      peers.push_back(peers.size() == 2 ? peers[0] : AnyRef(cluster.spawn<Peer>(on)));
    return wait_for(peers[0].call("round", {internal::to_value(peers), Value(int64_t{1})}));
  }
  auto sleeper = cluster.spawn<Sleeper>("w2");
  if (what == "stopped") {
    std::printf("pid %ld\n", static_cast<long>(sleeper.call<&Sleeper::quick>().get()));
    return wait_for(sleeper.call<&Sleeper::nap>());
  }
  if (what == "relay") {
    auto relay = cluster.spawn<Relay>("w1");
    const auto asleep = sleeper.call<&Sleeper::nap>();
    const auto asked = relay.call<&Relay::ask>(sleeper);
    std::vector<Future<int64_t>> behind;
    for (int i = 0; i < 20; ++i) behind.push_back(sleeper.call<&Sleeper::quick>());
    return wait_for(asked);
  }
  if (what == "late") {  // some steps, and then one that does not end
    auto half = cluster.spawn<Half>("w1", 1, 1);
    for (int i = 0; i < 20; ++i) {
      autograd::Context step(cluster);
      step.backward(half(ones({4, 1})).get().sum());
    }
    autograd::Context step(cluster);
    return wait_for(sleeper.call<&Sleeper::nap>());
  }
  if (what == "full") {
    const auto asleep = sleeper.call<&Sleeper::nap>();
    ready();
    std::vector<Future<int64_t>> more;
    for (int i = 0; i < 1000; ++i) more.push_back(sleeper.call<&Sleeper::quick>());  // waits for room
    (void)asleep.wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  ClusterOptions options{.timeout = std::chrono::hours(1)};
  if (what == "full") options.limits.messages = 8;
  const char* job = std::getenv("TROUPE_JOB");
  return launch(
      [&](Cluster& cluster) {
        std::printf("job %s\n", job ? job : "");
        drive(cluster, what);
      },
      options);
}
