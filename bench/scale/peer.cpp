// The actor that bench_scale calls, and what it says about its process.
#include <malloc.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "bench/scale/parts.h"
#include "core/memory/storage.h"

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // namespace

double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd) -
         static_cast<double>(allocator_stats().cached);
}

double resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;)
    if (double kib = 0; word == "Pss:" && rollup >> kib) return 1024 * kib;
  throw_error(ErrorKind::failed, "[bench] no Pss in /proc/self/smaps_rollup");
}

Task<double> Peer::echoes_of(RRef<Peer> other, int64_t calls) {
  const auto start = Clock::now();
  for (int64_t i = 0; i < calls; ++i) co_await other.call<&Peer::echo>(i);
  co_return microseconds_since(start) / static_cast<double>(calls);
}

Task<double> Peer::tensors_of(RRef<Peer> other, int64_t calls) {
  const Tensor x = ones({1 << 20});
  const auto start = Clock::now();
  for (int64_t i = 0; i < calls; ++i) co_await other.call<&Peer::back>(x);
  co_return microseconds_since(start) / static_cast<double>(calls);
}

Task<bool> Peer::sends_in_place(RRef<Peer> other) {
  const Tensor x = ones({1 << 20});
  if (!co_await other.call<&Peer::lies_at>(x, reinterpret_cast<int64_t>(x.bytes()))) co_return false;
  const Tensor y = co_await other.call<&Peer::back>(x);
  co_return y.bytes() == x.bytes();
}

Task<void> Peer::visit(std::vector<RRef<Peer>> others, int64_t calls) {
  const Tensor x = ones({1024});
  for (auto& other : others)
    for (int64_t i = 0; i < calls; ++i) co_await other.call<&Peer::back>(x);
}

int64_t Peer::process() { return getpid(); }

void Peer::allow_tracing() {
  // Fails where the kernel knows no such restriction, and then there is none.
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

}  // namespace troupe::bench
