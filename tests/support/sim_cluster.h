// A cluster on the simulated network: one thread, virtual time, a function of its seed.
#pragma once
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "actors/runtime/serial_runtime.h"
#include "net/sim/network.h"
#include "troupe/cluster.h"

namespace troupe::testing {

class SimCluster {
 public:
  /// `timeout`: of calls that name none. `limits`: of calls that have not begun.
  SimCluster(uint64_t seed, int count, internal::actors::TypeRegistry hosting,
             Duration timeout = std::chrono::seconds(60), FlowLimits limits = {})
      : network_(seed, true), runtime_(std::make_shared<internal::actors::SerialRuntime>()) {
    for (int i = 0; i < count; ++i) {
      const auto id = static_cast<WorkerId>(i);
      workers_.push_back(std::make_unique<internal::actors::Worker>(
          internal::actors::WorkerOptions{.id = id,
                                          .name = "w" + std::to_string(i),
                                          .host = "sim",
                                          .hosting = hosting,
                                          .runtime = runtime_,
                                          .dispatch = internal::actors::Dispatch::caller,
                                          .timeout = timeout,
                                          .limits = limits,
                                          .clock = &network_.clock(),
                                          .timer_thread = false}));
      tables_.push_back(install_layers(*workers_.back()));
    }
    for (auto& w : workers_) {
      for (auto& o : workers_) w->members().add({o->id(), o->name(), "sim", {"sim:" + o->name()}});
      w->set_transport(network_.make_transport(
          w->name(), {.self = {w->id(), w->name()}, .token = "a token for simulations", .limits = {}}, *w));
      listeners_.push_back(w->transport().listen("sim:" + w->name()));
    }
  }
  ~SimCluster() {
    for (auto& w : workers_) w->stop();
  }

  internal::net::Network& network() { return network_; }
  internal::actors::Worker& worker(size_t i) { return *workers_[i]; }
  Duration now() const { return network_.clock().now().time_since_epoch(); }

  template <class T, class... A>
  RRef<T> spawn(size_t from, size_t on, A... args) {
    return Here(tables_[from]).template spawn<T>(on, std::move(args)...);
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
    for (auto& w : workers_) next = std::min(next, w->tick());
    return next;
  }
  internal::net::Network network_;
  TimePoint wake_ = TimePoint::max();  // of the last deadline that was scheduled
  std::shared_ptr<internal::actors::Runtime> runtime_;
  std::vector<std::unique_ptr<internal::actors::Worker>> workers_;
  std::vector<std::shared_ptr<internal::rref::RefTable>> tables_;
  std::vector<std::unique_ptr<internal::net::Listener>> listeners_;
};

}  // namespace troupe::testing
