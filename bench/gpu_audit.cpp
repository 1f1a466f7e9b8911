#include "bench/gpu_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "bench/transformer.h"

namespace troupe::bench {
namespace {

using sim_cuda::Asked;

constexpr size_t kMemory = size_t{60} << 30;  // of addresses: a dry run touches none

Tensor some_ids(int64_t n, int64_t vocabulary, Device device) {
  Generator generator(1);
  std::vector<int64_t> ids(static_cast<size_t>(n));
  for (auto& id : ids) id = static_cast<int64_t>(generator.below(static_cast<uint64_t>(vocabulary)));
  return tensor(ids).data_on(device);
}

// Attention's products are within its kernels. Causal: half of the scores. Backwards five in place of two.
double flops_of(const Asked& a, const Gpt2& size) {
  if (a.name != "self_attention" && a.name != "self_attention_grad") return a.flops;
  const double scores = 0.5 * static_cast<double>(size.batch * size.heads * size.context * size.context);
  return (a.name == "self_attention" ? 2 : 5) * 2 * scores * static_cast<double>(size.width / size.heads);
}

struct Line {
  uint64_t count = 0;
  double read = 0, written = 0, flops = 0;
};

}  // namespace

uint64_t StepAudit::casts() const {
  return static_cast<uint64_t>(std::ranges::count_if(
      asked, [](const Asked& a) { return a.kind == Asked::Kind::kernel && a.name == "to"; }));
}
uint64_t StepAudit::bytes() const {
  uint64_t sum = 0;
  for (const Asked& a : asked) sum += a.read + a.written;
  return sum;
}

StepAudit audit_step(const Gpt2& size) {
  const Device device("cuda:0");
  const sim_cuda::DryRun dry;
  sim_cuda::set_memory(kMemory);
  StepAudit audit;
  {
    CharTransformer model(size.vocabulary, size.width, size.layers, size.heads, size.context);
    model.to(device);
    model.to(bfloat16);
    optim::AdamW adam(model.parameters(), {.lr = 6e-4});
    const Tensor ids = some_ids(size.batch * size.context, size.vocabulary, device);
    for (int step = 0; step < 3; ++step) {
      sim_cuda::reset_counters();
      sim_cuda::begin_audit();
      const auto start = std::chrono::steady_clock::now();
      {
        const Tensor scores = model(ids.reshape({size.batch, size.context}));
        autograd::backward(cross_entropy(scores, ids));
      }
      adam.step();
      adam.zero_grad();
      audit.host_ms =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      audit.asked = sim_cuda::end_audit();
      audit.counters = sim_cuda::counters();
    }
  }
  release_cached_memory(device);
  sim_cuda::set_memory(size_t{8} << 30);
  return audit;
}

std::string table_of(const StepAudit& audit, const Gpt2& size, const Card& card) {
  // Of several launches of one operator the first one counts its flops.
  std::map<std::string, Line> lines;
  std::vector<std::string> order;
  std::string last;
  for (const Asked& a : audit.asked) {
    const bool product = a.kind == Asked::Kind::product;
    const std::string name = product ? "product" : a.name + (a.body.empty() ? "" : " " + a.body);
    if (!lines.contains(name)) order.push_back(name);
    Line& line = lines[name];
    ++line.count;
    line.read += static_cast<double>(a.read), line.written += static_cast<double>(a.written);
    if (product || a.name != last) line.flops += flops_of(a, size);
    last = a.name;
  }
  std::string text =
      fmt::format("| {:38} | {:>6} | {:>8} | {:>8} | {:>7} | {:>11} |\n|---|---|---|---|---|---|\n", "work",
                  "times", "GB read", "written", "TFLOP", "ms at best");
  double total_ms = 0;
  Line total;
  for (const std::string& name : order) {
    const Line& l = lines[name];
    const double ms = 1e3 * std::max((l.read + l.written) / card.bytes_per_s, l.flops / card.flops_per_s);
    total_ms += ms;
    total.count += l.count, total.read += l.read, total.written += l.written, total.flops += l.flops;
    text += fmt::format("| {:38} | {:6} | {:8.3f} | {:8.3f} | {:7.3f} | {:11.3f} |\n", name, l.count,
                        l.read / 1e9, l.written / 1e9, l.flops / 1e12, ms);
  }
  text += fmt::format("| {:38} | {:6} | {:8.3f} | {:8.3f} | {:7.3f} | {:11.3f} |\n\n", "all", total.count,
                      total.read / 1e9, total.written / 1e9, total.flops / 1e12, total_ms);
  const sim_cuda::Counters& c = audit.counters;
  text += fmt::format(
      "GPT-2, batch {}, a steady step: {} launches, {} casts, {:.1f} GB, {} copies, {} fills, {} allocations "
      "({} that the pool asks "
      "the driver for), {} waits of the host; {:.1f} ms of the host, {:.1f} GB of memory. {} at best: {:.1f} "
      "TB/s, {:.0f} TFLOP/s.\n",
      size.batch, c.launches, audit.casts(), static_cast<double>(audit.bytes()) / 1e9, c.copies, c.fills,
      c.allocations, c.grown, c.synchronizations, audit.host_ms, static_cast<double>(c.most_used) / 1e9,
      card.name, card.bytes_per_s / 1e12, card.flops_per_s / 1e12);
  return text;
}

}  // namespace troupe::bench
