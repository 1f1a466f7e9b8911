// Two workers of this process, whose messages go through sockets and shared memory as if they were two
// processes of one host.
#pragma once
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "net/socket/socket_transport.h"
#include "troupe/troupe.h"

namespace troupe::testing {

class TwoWorkers {
 public:
  /// `map`: of devices, from w0 to w1.
  explicit TwoWorkers(const internal::actors::TypeRegistry& hosting, const internal::net::DeviceMap& map = {},
                      const internal::net::Limits& limits = {}) {
    static std::atomic<int> scenes{0};
    const std::string scene =
        "unix:@troupe-two-" + std::to_string(::getpid()) + "-" + std::to_string(++scenes);
    for (WorkerId id = 0; id < 2; ++id) {
      const std::string name = "w" + std::to_string(id);
      workers_[id] = std::make_unique<internal::actors::Worker>(internal::actors::WorkerOptions{
          .id = id,
          .name = name,
          .host = "here",
          .hosting = hosting,
          .device_maps = {{"w" + std::to_string(1 - id), id == 0 ? map : map.inverse("w1 to w0")}}});
      tables_[id] = install_layers(*workers_[id]);
      workers_[id]->set_transport(internal::net::make_socket_transport(
          {{id, name}, "a token for two workers", limits}, *workers_[id]));
      listeners_[id] = workers_[id]->transport().listen(scene + name);
    }
    for (auto& w : workers_)
      for (auto& o : workers_)
        w->members().add({o->id(), o->name(), "here", {listeners_[o->id()]->address()}});
  }
  ~TwoWorkers() {
    for (auto& w : workers_) w->disconnect();
  }

  internal::actors::Worker& worker(size_t i) { return *workers_[i]; }
  /// An actor on w1, as w0 refers to it.
  template <class T, class... A>
  RRef<T> spawn(A... args) {
    return Here(tables_[0]).template spawn<T>(1, std::move(args)...);
  }

 private:
  std::array<std::unique_ptr<internal::actors::Worker>, 2> workers_;
  std::array<std::shared_ptr<internal::rref::RefTable>, 2> tables_;
  std::array<std::unique_ptr<internal::net::Listener>, 2> listeners_;
};

}  // namespace troupe::testing
