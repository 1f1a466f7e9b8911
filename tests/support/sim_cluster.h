// A cluster on the simulated network: one thread, virtual time, a function of its seed.
#pragma once
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "actors/cell/actor_host.h"
#include "actors/runtime/serial_runtime.h"
#include "actors/worker/worker.h"
#include "net/sim/network.h"
#include "rref/ref_table.h"
#include "troupe/cluster/cluster.h"
#include "troupe/cluster/worker_stack.h"

namespace troupe::testing {

class SimCluster {
 public:
  /// `timeout`: of calls that name none. `limits`: of calls that have not begun. `hosts`: of the workers;
  /// empty: all are on one.
  SimCluster(uint64_t seed, int count, internal::actors::TypeRegistry hosting,
             Duration timeout = std::chrono::seconds(60), FlowLimits limits = {},
             const std::vector<std::string>& hosts = {})
      : network_(seed, true), runtime_(std::make_shared<internal::actors::SerialRuntime>()) {
    for (int i = 0; i < count; ++i) {
      const auto id = static_cast<WorkerId>(i);
      stacks_.push_back(std::make_unique<WorkerStack>(
          internal::actors::WorkerOptions{.id = id,
                                          .name = "w" + std::to_string(i),
                                          .host = hosts.empty() ? "sim" : hosts.at(static_cast<size_t>(i)),
                                          .hosting = hosting,
                                          .runtime = runtime_,
                                          .dispatch = internal::actors::Dispatch::caller,
                                          .timeout = timeout,
                                          .limits = limits,
                                          .clock = &network_.clock(),
                                          .timer_thread = false}));
    }
    connect_in_memory(stacks_, network_, "a token for simulations");
  }
  ~SimCluster() {
    for (auto& stack : stacks_) stack->worker().stop();
    for (auto& stack : stacks_) stack->stop_listening();
  }

  internal::net::Network& network() { return network_; }
  internal::actors::Worker& worker(size_t i) { return stacks_[i]->worker(); }
  Duration now() const { return network_.clock().now().time_since_epoch(); }

  template <class T, class... A>
  RRef<T> spawn(size_t from, size_t on, A... args) {
    return Here(stacks_[from]->references()).template spawn<T>(on, std::move(args)...);
  }

  /// One event of the network, and the deadlines that have passed by then. False: nothing is left to happen.
  bool step() {
    const TimePoint next = tick();
    if (next != TimePoint::max() && next != wake_) {  // no event may overtake a deadline
      wake_ = next;
      network_.schedule(std::max(next - network_.clock().now(), Duration(1)), [] {});
    }
    if (!network_.step()) return false;
    tick();
    return true;
  }
  /// Runs until the future is ready; throws if it never will be.
  template <class T>
  Result<T> await(const Future<T>& future) {
    while (!future.is_ready())
      if (!step() && !future.is_ready())
        throw std::logic_error("nothing is left to happen, and the future is not ready");
    return *future.peek();
  }
  void settle() {
    while (step()) {
    }
  }

 private:
  TimePoint tick() {
    TimePoint next = TimePoint::max();
    for (auto& stack : stacks_) next = std::min(next, stack->worker().tick());
    return next;
  }
  internal::net::Network network_;
  TimePoint wake_ = TimePoint::max();  // of the last deadline that was scheduled
  std::shared_ptr<internal::actors::Runtime> runtime_;
  WorkerStacks stacks_;
};

}  // namespace troupe::testing
