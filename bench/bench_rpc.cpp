// Calls, references and distributed backward passes between two workers: `troupe run -n 2 bench_rpc`.
#include <chrono>

#include "bench/measure.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Peer : Actor {
  int64_t echo(int64_t x) { return x; }
  Tensor add(Tensor a, Tensor b) { return ops::add(a, b); }
  Tensor mul(Tensor a, Tensor b) { return ops::mul(a, b); }
  Tensor neg(Tensor x) { return ops::neg(x); }
  static constexpr auto remote = methods<&Peer::echo, &Peer::add, &Peer::mul, &Peer::neg>;
};

/// A remote value: made from two tensors where it lives, and fetched.
struct Sum : Actor {
  Sum(Tensor a, Tensor b) : value(ops::add(a, b)) {}
  Tensor fetch() { return value; }
  Tensor value;
  static constexpr auto remote = methods<&Sum::fetch>;
};

constexpr int kInFlight = 5000;

/// Calls per second: all are sent, then all are waited for.
template <class Call>
double rate(const bench::Bench& bench, Call&& call) {
  const auto calls = static_cast<size_t>(bench.count(kInFlight));
  const double us = bench.median_us(
      [&] {
        std::vector<std::decay_t<decltype(call())>> sent;
        sent.reserve(calls);
        for (size_t i = 0; i < calls; ++i) sent.push_back(call());
        for (const auto& reply : sent) reply.get();
      },
      5, 1);
  return 1e6 * static_cast<double>(calls) / us;
}

void calls(const bench::Bench& bench, Cluster& cluster, const std::string& where, const RRef<Peer>& peer) {
  bench.emit("rpc_echo_us", bench.median_us([&] { peer.call<&Peer::echo>(1).get(); }, 2000, 100), "us");
  const Tensor one = ones({1});
  bench.emit("rpc_builtin_us", bench.median_us([&] { peer.call<&Peer::add>(one, one).get(); }, 2000, 100),
             "us");
  Generator generator(0);
  for (int64_t kib : {4, 1024, 16384, 65536}) {
    const Tensor x = randn({kib * 256}, generator);
    const double us = bench.median_us([&] { peer.call<&Peer::neg>(x).get(); }, kib > 1024 ? 15 : 200);
    bench.emit("rpc_tensor_us", us, "us",
               {{"kib", kib}, {"gb_per_s", std::round(2048e-3 * static_cast<double>(kib) / us * 1e3) / 1e3}});
  }
  bench.emit("rpc_async_calls_per_s", rate(bench, [&] { return peer.call<&Peer::echo>(1); }), "1/s");
  bench.emit("rpc_async_builtin_calls_per_s", rate(bench, [&] { return peer.call<&Peer::add>(one, one); }),
             "1/s");
  auto create_and_fetch = [&] { cluster.spawn<Sum>(where, one, one).call<&Sum::fetch>().get(); };
  bench.emit("rref_create_fetch_us", bench.median_us(create_and_fetch, 1000, 50), "us");
}

void backward(const bench::Bench& bench, Cluster& cluster, const RRef<Peer>& peer) {
  Generator generator(1);
  Tensor a = randn({32, 32}, generator), b = randn({32, 32}, generator);
  a.requires_grad_(), b.requires_grad_();
  for (int hops : {1, 5, 20}) {
    auto step = [&] {
      autograd::Context context(cluster);
      Tensor y = a;
      for (int i = 0; i < hops; ++i) y = peer.call<&Peer::mul>(y, b).get();
      context.backward(y.sum());
      if (!context.grad(a).defined() || !context.grad(b).defined())
        throw_error(ErrorKind::failed, "[bench] a gradient did not arrive");
    };
    bench.emit("dist_backward_us", bench.median_us(step, 300 / hops + 20), "us", {{"hops", hops}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_rpc", "Times calls between two workers; start it with troupe run -n 2.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Peer, Sum>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 2) throw_invalid("[bench] bench_rpc needs 2 workers, got 1");
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    const auto peer = cluster.spawn<Peer>(names[1]);
    calls(bench, cluster, names[1], peer);
    backward(bench, cluster, peer);
  });
}
