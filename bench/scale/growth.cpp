// How backward passes grow with hops and with calls side by side, and memory with actors and references.
#include <algorithm>
#include <chrono>

#include "bench/scale/clocks.h"
#include "bench/scale/parts.h"

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Time of the backward pass alone over what `forward` makes, and of the whole step.
struct Pass {
  double backward_us, step_us;
};
Pass pass(const Bench& bench, Cluster& cluster, const Tensor& leaf, int times,
          const std::function<Tensor()>& forward) {
  std::vector<double> backward, step;
  const int warmup = bench.count(3);
  for (int i = 0; i < warmup + bench.count(times); ++i) {
    const auto start = Clock::now();
    autograd::Context context(cluster);
    const Tensor root = forward().sum();
    const auto middle = Clock::now();
    context.backward(root);
    const auto end = Clock::now();
    if (!context.grad(leaf).defined()) throw_error(ErrorKind::failed, "[bench] a gradient did not arrive");
    context.end().get();
    if (i < warmup) continue;
    backward.push_back(std::chrono::duration<double, std::micro>(end - middle).count());
    step.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return {median(backward), median(step)};
}

/// Makes 1000 to `most` things, with what they take in the owner's process and in this one.
template <class Make>
void bytes_of(const Bench& bench, const std::string& name, const char* key, int most, const RRef<Peer>& owner,
              Make&& make) {
  const double there = owner.call<&Peer::heap>().get(), here = heap_bytes();
  int made = 0;
  for (int target = 1000; target <= most; target *= 2) {
    for (; made < bench.count(target); ++made) make(made);
    owner.call<&Peer::echo>(0).get();
    bench.emit(name, owner.call<&Peer::heap>().get() - there, "B",
               {{key, target}, {"holder", heap_bytes() - here}});
  }
}

}  // namespace

void measure_backward(const Bench& bench, Cluster& cluster) {
  const auto names = cluster.workers();
  const std::vector<RRef<Peer>> peers = {cluster.spawn<Peer>(names[1]), cluster.spawn<Peer>(names[2])};
  Generator generator(1);
  Tensor a = randn({32, 32}, generator), b = randn({32, 32}, generator);
  a.requires_grad_(), b.requires_grad_();
  for (int n = 1; n <= 64; n *= 2) {
    const Pass p = pass(bench, cluster, a, std::clamp(600 / n, 15, 150), [&] {
      Tensor y = a;
      for (int i = 0; i < n; ++i) y = peers[static_cast<size_t>(i) % 2].call<&Peer::mul>(y, b).get();
      return y;
    });
    bench.emit("scale_backward_hops_us", p.backward_us, "us", {{"hops", n}, {"step", p.step_us}});
  }
  for (int n = 1; n <= 64; n *= 2) {
    const Pass p = pass(bench, cluster, a, std::clamp(600 / n, 15, 150), [&] {
      std::vector<Future<Tensor>> calls;
      for (int i = 0; i < n; ++i) calls.push_back(peers[static_cast<size_t>(i) % 2].call<&Peer::mul>(a, b));
      Tensor y = calls[0].get();
      for (int i = 1; i < n; ++i) y = ops::add(y, calls[static_cast<size_t>(i)].get());
      return y;
    });
    bench.emit("scale_backward_fan_out_us", p.backward_us, "us", {{"fan_out", n}, {"step", p.step_us}});
  }
}

void measure_memory(const Bench& bench, Cluster& cluster) {
  const auto place = cluster.workers()[1];
  const auto owner = cluster.spawn<Peer>(place);
  {
    std::vector<RRef<Peer>> actors;
    actors.reserve(64000);
    const auto make = [&](int i) {
      actors.push_back(cluster.spawn<Peer>(place));
      if (i % 1000 == 999) actors.back().ready().get();
    };
    for (int i = 0; i < bench.count(1000); ++i) make(i);  // what the first ones need besides
    actors.back().ready().get();
    actors.clear();
    owner.call<&Peer::echo>(0).get();
    bytes_of(bench, "scale_actor_bytes", "actors", 32000, owner, make);
  }
  owner.call<&Peer::echo>(0).get();
  std::vector<Remote<int64_t>> refs;
  refs.reserve(64000);
  const auto make = [&](int i) {
    refs.push_back(owner.remote<&Peer::echo>(i));
    if (i % 1000 == 999) refs.back().ready().get();  // the connection's queue has a bound
  };
  for (int i = 0; i < bench.count(1000); ++i) make(i);
  refs.back().ready().get();
  refs.clear();
  owner.call<&Peer::echo>(0).get();
  bytes_of(bench, "scale_reference_bytes", "references", 64000, owner, make);
}

}  // namespace troupe::bench
