// A worker with what is above and below it: layers, transport, listeners. They are put together here and
// nowhere else, so a new transport is added here.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "actors/worker/worker.h"
#include "rref/ref_table.h"
#include "troupe/launch/launch_environment.h"

namespace troupe {

namespace internal::net {
class Network;
struct SocketLimits;
}  // namespace internal::net

/// What a program hosts, and what layers above the workers need everywhere.
internal::actors::TypeRegistry with_builtin_types(internal::actors::TypeRegistry hosting);

class WorkerStack {
 public:
  /// The worker, and on it everything above calls: references, autograd, optimizers, pipelines.
  explicit WorkerStack(internal::actors::WorkerOptions options);
  /// The end of the worker, also if somebody shares it.
  ~WorkerStack();

  // ---- One of these puts the transport below the worker, when everything that serves messages is installed.
  /// Memory of this process: the worker listens at "sim:NAME".
  void use_memory(internal::net::Network& network, const std::string& token);
  /// Sockets: the worker listens nowhere yet.
  void use_sockets(const std::string& token, const internal::net::SocketLimits& limits,
                   const std::string& job = "", Encryption encryption = Encryption::off,
                   const Certificate& certificate = {});
  /// The transport of a launched process, as its environment says. An attempt to connect takes `connect` at
  /// most.
  void use_launched(const LaunchEnvironment& environment, const std::string& token, Duration connect);

  void listen(const std::string& address);
  void stop_listening() { listeners_.clear(); }
  /// No listener is left, and no message arrives afterwards.
  void disconnect();

  internal::actors::Worker& worker() { return *worker_; }
  std::shared_ptr<internal::rref::RefTable> references() const { return references_; }
  /// What others know of it: where it has listened.
  internal::actors::Member member() const;

 private:
  std::shared_ptr<internal::actors::Worker> worker_;
  std::shared_ptr<internal::rref::RefTable> references_;
  std::vector<std::unique_ptr<internal::net::Listener>> listeners_;
  std::vector<std::string> addresses_;
};

using WorkerStacks = std::vector<std::unique_ptr<WorkerStack>>;

/// Makes them members of one cluster, by memory.
void connect_in_memory(const WorkerStacks& all, internal::net::Network& network, const std::string& token);

}  // namespace troupe
