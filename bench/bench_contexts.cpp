// Many live contexts: what one costs in bytes, and whether the next step costs more when thousands are alive.
#include <malloc.h>

#include <chrono>
#include <memory>
#include <vector>

#include "bench/measure.h"
#include "core/memory/storage.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Layer : Actor {
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w = Tensor::full({8}, 2).set_requires_grad();
  static constexpr auto remote = methods<&Layer::forward, &Layer::gradient>;
};

/// Of the whole process; the caching allocator's blocks that are free do not count.
double bytes_in_use() {
  const auto stats = allocator_stats();
  return static_cast<double>(mallinfo2().uordblks) + static_cast<double>(mallinfo2().hblkhd) -
         static_cast<double>(stats.cached);
}

/// A step whose context stays: a call, a pass, and a look at the gradient on the other worker.
std::unique_ptr<autograd::Context> step(Cluster& cluster, const RRef<Layer>& layer, const Tensor& x) {
  auto context = std::make_unique<autograd::Context>(cluster);
  context->backward(layer.call<&Layer::forward>(x).get().sum());
  if (!layer.call<&Layer::gradient>().get().defined())
    throw_error(ErrorKind::failed, "[bench] a gradient did not arrive");
  return context;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_contexts",
                     "Times steps between two workers of this process while many contexts live.", argc, argv);
  if (bench.exit_code) return *bench.exit_code;
  const auto cluster = Cluster::in_process(2, hosting<Layer>());
  const auto layer = cluster->spawn<Layer>("w1");
  const Tensor x = Tensor::full({8}, 3).set_requires_grad();
  std::vector<std::unique_ptr<autograd::Context>> live;
  for (int i = 0; i < bench.count(200); ++i) (void)step(*cluster, layer, x);  // warm
  for (int target : {0, 100, 1000, 10000}) {
    const double before = bytes_in_use();
    const size_t had = live.size();
    while (live.size() < size_t(target)) live.push_back(step(*cluster, layer, x));
    const double us = bench.median_us([&] { step(*cluster, layer, x)->end().get(); }, 2000, 20);
    bench.emit("context_step_us", us, "us", {{"live", double(target)}});
    if (target)
      bench.emit("context_bytes", (bytes_in_use() - before) / double(live.size() - had), "bytes",
                 {{"live", double(target)}});
  }
  const auto start = std::chrono::steady_clock::now();
  const auto count = static_cast<double>(live.size());
  while (!live.empty()) live.pop_back();  // innermost first
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  bench.emit("context_end_us", took.count() / count, "us", {{"live", count}});
}
