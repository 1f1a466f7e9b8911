// Two workers of this process, whose messages go through sockets and shared memory as if they were two
// processes of one host.
#pragma once
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "actors/worker/worker.h"
#include "net/socket/socket_transport.h"
#include "rref/ref_table.h"
#include "troupe/cluster/worker_stack.h"
#include "troupe/troupe.h"

namespace troupe::testing {

class TwoWorkers {
 public:
  /// `map`: of devices, from w0 to w1.
  explicit TwoWorkers(const internal::actors::TypeRegistry& hosting, const internal::net::DeviceMap& map = {},
                      const internal::net::SocketLimits& limits = {}) {
    static std::atomic<int> scenes{0};
    const std::string scene =
        "unix:@troupe-two-" + std::to_string(::getpid()) + "-" + std::to_string(++scenes);
    for (WorkerId id = 0; id < 2; ++id) {
      const std::string name = "w" + std::to_string(id);
      stacks_[id] = std::make_unique<WorkerStack>(internal::actors::WorkerOptions{
          .id = id,
          .name = name,
          .host = "here",
          .hosting = hosting,
          .device_maps = {{"w" + std::to_string(1 - id), id == 0 ? map : map.inverse("w1 to w0")}}});
      stacks_[id]->use_sockets("a token for two workers", limits);
      stacks_[id]->listen(scene + name);
    }
    for (auto& stack : stacks_)
      for (auto& other : stacks_) stack->worker().members().add(other->member());
  }
  ~TwoWorkers() {
    for (auto& stack : stacks_) stack->worker().disconnect();
  }

  internal::actors::Worker& worker(size_t i) { return stacks_[i]->worker(); }
  /// An actor on w1, as w0 refers to it.
  template <class T, class... A>
  RRef<T> spawn(A... args) {
    return Here(stacks_[0]->references()).template spawn<T>(1, std::move(args)...);
  }

 private:
  std::array<std::unique_ptr<WorkerStack>, 2> stacks_;
};

}  // namespace troupe::testing
