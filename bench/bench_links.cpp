// Sums, training steps and large tensors over the links of hosts: bench/hosts.py --beside starts it on hosts
// that are network namespaces, beside Gloo (bench/torch_hosts.py) and raw sockets.
#include <algorithm>
#include <chrono>

#include "bench/measure.h"
#include "bench/wide_mlp.h"
#include "core/async/future_combinators.h"
#include "tools/flags/flags.h"
#include "troupe/groups.h"
#include "troupe/replicas.h"
#include "troupe/troupe.h"
using namespace troupe;
using parallel::split;

namespace {

using bench::kHidden, bench::kIn, bench::kOut;
using std::chrono::steady_clock;

constexpr int64_t kLargeKib = 65536;
constexpr auto kLimit = std::chrono::minutes(5);

double us_since(steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - start).count();
}

double middle(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct LinkMember : Actor {
  /// Microseconds of the middle one of so many sums; two more come before.
  Task<double> sum(Group group, int64_t kib, int64_t times) {
    Tensor x = full({kib * 256}, static_cast<double>(group.rank() + 1));
    std::vector<double> all;
    for (int64_t i = -2; i < times; ++i) {
      const auto start = steady_clock::now();
      x = co_await group.all_reduce(std::move(x));
      if (i >= 0) all.push_back(us_since(start));
      if (i > -2) continue;
      const auto n = static_cast<double>(group.size());
      if (!x.equal(full({kib * 256}, n * (n + 1) / 2))) throw_invalid("[bench] a sum is wrong");
      x = zeros({kib * 256});
    }
    co_return middle(std::move(all));
  }
  /// The same, of sends from rank 0 to the last one, until they have come.
  Task<double> send(Group group, int64_t kib, int64_t times) {
    const Tensor x = ones({kib * 256});
    std::vector<double> all;
    const size_t last = group.size() - 1;
    for (int64_t i = -2; i < times; ++i) {
      const auto start = steady_clock::now();
      if (group.rank() == 0) co_await group.send(x, last);
      if (group.rank() == last)
        if (const Tensor came = co_await group.receive(0); came.numel() != kib * 256)
          throw_invalid("[bench] another tensor came");
      if (i >= 0) all.push_back(us_since(start));
    }
    co_return middle(std::move(all));
  }
  int64_t count(Tensor x) { return x.numel(); }
  static constexpr auto remote = methods<&LinkMember::sum, &LinkMember::send, &LinkMember::count>;
};

struct LinkLayers : nn::Layer {
  LinkLayers() { bench::start(first, 0), bench::start(second, 1), bench::start(last, 2); }
  nn::Linear first{kIn, kHidden}, second{kHidden, kHidden}, last{kHidden, kOut};
  Tensor forward(const Tensor& x) override { return last(relu(second(relu(first(x))))); }
  void members(nn::Members& m) override { m("first", first), m("second", second), m("last", last); }
};

struct LinkReplica : nn::ModuleActor<LinkLayers> {
  Tensor loss(Tensor x, Tensor y) { return cross_entropy(net(x), y); }
  static constexpr auto remote = methods<&LinkReplica::loss>;
};

struct LinkParts : nn::Module {
  LinkParts() { bench::start(first.module, 0), bench::start(second.module, 1), bench::start(last.module, 2); }
  Task<Tensor> operator()(Tensor x) {
    x = co_await first(x);
    x = co_await second(relu(x));
    co_return co_await last(relu(x));
  }
  void members(nn::Members& m) override { m("first", first), m("second", second), m("last", last); }
  parallel::Sharded<nn::Linear> first{kIn, kHidden}, second{kHidden, kHidden}, last{kHidden, kOut};
};

struct LinkPiece : nn::ModuleActor<LinkParts> {
  Task<Tensor> loss(Tensor x, Tensor y) {
    const Tensor logits = co_await net(x);
    co_return cross_entropy(logits, y);
  }
  static constexpr auto remote = methods<&LinkPiece::loss>;
};

template <class Replica>
void measure_steps(const bench::Bench& bench, Cluster& cluster, const char* name, parallel::Shard shard) {
  const bench::Batch batch;
  const int64_t rows = bench::kBatch - bench::kBatch % std::ssize(cluster.workers());  // as many each
  const Tensor x = batch.x.narrow(0, 0, rows), y = batch.y.narrow(0, 0, rows);
  const parallel::DataParallelOptions options{.shard = shard};
  const auto names = cluster.workers();
  const Group group(cluster, {names.begin(), names.end()});
  parallel::DataParallel<Replica> net(cluster.here(), group, options);
  optim::Distributed<optim::Adam> adam(net, {});
  const auto step = [&] {
    autograd::Context context(cluster);
    const Tensor loss = net.template mean<&Replica::loss>(split(x), split(y)).get();
    context.backward(loss);
    adam.step(context);
    return loss;
  };
  const bench::TimedSteps steps(bench, step, 10);
  bench.emit(name, steps.us, "us",
             {{"ranks", static_cast<double>(group.size())}, {"batch", static_cast<double>(rows)}},
             steps.losses);
}

void measure_sums(const bench::Bench& bench, const std::vector<RRef<LinkMember>>& members,
                  const Group& group) {
  for (const auto& [kib, times] : {std::pair{4, 300}, {25600, 8}}) {
    std::vector<Future<double>> all_times;
    for (const auto& m : members)
      all_times.push_back(
          m.with_timeout(kLimit).call<&LinkMember::sum>(group, kib, int64_t{bench.count(times)}));
    bench.emit("allreduce_us", all(all_times).get()[0], "us",
               {{"kib", kib}, {"ranks", static_cast<double>(group.size())}});
  }
}

void measure_tensors(const bench::Bench& bench, const std::vector<RRef<LinkMember>>& members,
                     const Group& group) {
  std::vector<Future<double>> sends;
  for (const auto& m : members)
    sends.push_back(m.with_timeout(kLimit).call<&LinkMember::send>(group, kLargeKib, bench.count(8)));
  bench.emit("send_us", all(sends).get()[0], "us", {{"kib", kLargeKib}});
  const Tensor x = ones({kLargeKib * 256});
  const auto call = [&] {
    if (members.back().call<&LinkMember::count>(x).get() != x.numel())
      throw_invalid("[bench] another tensor came");
  };
  bench.emit("call_us", bench.median_us(call, 8, 2), "us", {{"kib", kLargeKib}});
}

}  // namespace

int main(int argc, char** argv) {
  std::string part = "all";
  bench::Bench bench("bench_links",
                     "Times sums, steps and large tensors over hosts; bench/hosts.py starts it.", argc, argv,
                     [&](tools::Flags& flags) {
                       flags.add("--part", part, "what to time", {"all", "sums", "tensors", "steps"});
                     });
  if (bench.exit_code) return *bench.exit_code;
  const auto wanted = [&](const char* name) { return part == "all" || part == name; };
  return launch(hosting<LinkMember, LinkReplica, LinkPiece>(), [&](Cluster& cluster) {
    std::vector<RRef<LinkMember>> members;
    for (const auto& name : cluster.workers()) members.push_back(cluster.spawn<LinkMember>(name));
    const Group group(members);
    if (wanted("sums")) measure_sums(bench, members, group);
    if (wanted("tensors")) measure_tensors(bench, members, group);
    if (!wanted("steps")) return;
    measure_steps<LinkReplica>(bench, cluster, "data_parallel_step_us", parallel::Shard::none);
    measure_steps<LinkPiece>(bench, cluster, "zero3_step_us", parallel::Shard::all);
  });
}
