// A program on one worker of a simulated cluster: a coroutine outside actors.
#pragma once
#include "tests/soak/actors.h"

namespace troupe::soak {

/// Suspends until the future is ready, and gives value or error.
template <class T>
struct Settled {
  internal::actors::FutureAwaiter<T> inner;
  bool await_ready() const { return inner.await_ready(); }
  void await_suspend(std::coroutine_handle<> coroutine) { inner.await_suspend(coroutine); }
  Result<T> await_resume() const { return *inner.future.peek(); }
};
template <class T>
Settled<T> settled(Future<T> future) {
  return {{std::move(future)}};
}

class Script {
 public:
  Script(Cluster& cluster, Process& process, uint64_t stream)
      : cluster(cluster), process(process), random(Generator(stream)) {}
  /// Its worker lives, and the run is not over.
  bool alive() const { return process.alive; }
  bool chance(uint64_t in) { return random.below(in) == 0; }
  size_t pick(size_t n) { return static_cast<size_t>(random.below(n)); }
  /// A worker that this one has not lost, as far as it knows.
  WorkerId any_worker();
  Tensor tensor();
  /// The numbers of a tensor are those of x, `times` over.
  void expect(const std::string& where, const Tensor& got, const Tensor& x, double times);
  /// `f` gives a future; what it throws becomes the future's error.
  template <class F>
  static auto attempt(F f) -> decltype(f()) {
    try {
      return f();
    } catch (...) {
      return decltype(f())::failed(current_error());
    }
  }
  void judge(const std::string& where, const Error& error, unsigned excuses = kNone) {
    if (alive()) cluster.judge(where, error, excuses);
  }
  RRef<Unit> unit(WorkerId on, int64_t number);

  Cluster& cluster;
  Process& process;
  Generator random;
};

/// The call is to go on although nobody keeps its future.
template <class T>
void let_run(const Future<T>& future) {
  future.on_ready([](const Result<T>&) {});
}

using Body = Task<void> (*)(Script&);
/// Starts a program on a worker.
void start(Cluster& cluster, Process& process, Body body, uint64_t stream);

Task<void> call_program(Script& s);
Task<void> reference_program(Script& s);
Task<void> value_program(Script& s);
Task<void> training_program(Script& s);
/// The names of its worker that are in doubt; any other is an error.
Task<void> drop_own_names(Script& s);

/// Forward, backward and optimizer step over two shards on `a` and `b`; true if all of it was right.
Task<bool> one_step(Script& s, WorkerId a, WorkerId b);

}  // namespace troupe::soak
