// What bench_scale measures, one function for each kind of cluster that it starts.
#pragma once
#include "bench/measure.h"
#include "troupe/troupe.h"

namespace troupe::bench {

/// Of this process, in bytes: what is allocated, without free blocks of caches; and its share of what is in
/// memory, rings that two processes map counted half.
double heap_bytes();
double resident_bytes();

struct Peer : Actor {
  int64_t echo(int64_t x) { return x; }
  Tensor back(Tensor x) { return x; }
  Tensor mul(Tensor a, Tensor b) { return ops::mul(a, b); }
  /// Whether the tensor lies there.
  bool lies_at(Tensor x, int64_t address) { return reinterpret_cast<int64_t>(x.bytes()) == address; }

  /// Calls another actor, one call after the other: microseconds for one.
  Task<double> echoes_of(RRef<Peer> other, int64_t calls);
  Task<double> tensors_of(RRef<Peer> other, int64_t calls);
  /// Sends a tensor to another actor: whether it arrives in the same place.
  Task<bool> sends_in_place(RRef<Peer> other);
  /// Sends a tensor of 4 KiB to each and gets it back, so many times.
  Task<void> visit(std::vector<RRef<Peer>> others, int64_t calls);

  double heap() { return heap_bytes(); }
  double resident() { return resident_bytes(); }
  int64_t process();
  /// Lets any process of this user count this one's system calls.
  void allow_tracing();

  static constexpr auto remote =
      methods<&Peer::echo, &Peer::back, &Peer::mul, &Peer::lies_at, &Peer::echoes_of, &Peer::tensors_of,
              &Peer::sends_in_place, &Peer::visit, &Peer::heap, &Peer::resident, &Peer::process,
              &Peer::allow_tracing>;
};

/// A caller, 1 to 64 callers, and 1 to 5000 calls in flight. 2 workers.
void measure_callers(const Bench& bench, Cluster& cluster);
/// A call while so many workers are there, and calls between all of them; with the most of them, connections.
void measure_workers(const Bench& bench, Cluster& cluster, bool connections);
/// Backward passes over 1 to 64 hops, and over 1 to 64 calls side by side. 3 workers.
void measure_backward(const Bench& bench, Cluster& cluster);
/// Bytes of actors and of references. 2 workers.
void measure_memory(const Bench& bench, Cluster& cluster);
/// What must stay below a number, whatever grows. 2 workers.
void measure_limits(const Bench& bench, Cluster& cluster);

}  // namespace troupe::bench
