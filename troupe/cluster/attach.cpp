#include "troupe/cluster/attach.h"

#include <fmt/format.h>

#include "actors/cluster/join.h"
#include "net/socket/socket_transport.h"
#include "troupe/cluster/worker_stack.h"

namespace troupe {
namespace {

class Attached final : public Cluster {
 public:
  Attached(const internal::watch::Attachment& to, const ClusterOptions& options)
      : Cluster(options),
        stack_({.id = to.id,
                .name = fmt::format("guest-{:x}", to.id),
                .host = internal::actors::host_identity(),
                .runtime = internal::actors::Runtime::make(options.threads),
                .timeout = options.timeout,
                .limits = options.limits,
                .on_full = options.on_full}) {
    worker_ = &stack_.worker();
    table_ = stack_.references();
    for (const auto& member : to.members) worker_->members().add(member);
    internal::net::SocketLimits limits;
    if (!to.shared_memory) limits.ring_bytes = limits.arena_bytes = 0;
    stack_.use_sockets(to.pass, limits, "", to.encryption, to.certificate);
  }
  ~Attached() override {
    if (begin_end()) Attached::end({});
  }
  std::vector<internal::actors::Worker*> workers_here() const override { return {worker_}; }

 private:
  // Of a graceful shutdown, which would be one of the job.
  Future<void> close_doors() override {
    throw_invalid("[cluster] a guest does not end the job that it looks at");
  }
  std::vector<std::string> end(Duration) override {
    table_->detach();
    stack_.disconnect();
    return {};
  }
  WorkerStack stack_;
};

}  // namespace

std::unique_ptr<Cluster> attach(const internal::watch::Attachment& to, const ClusterOptions& options) {
  return std::make_unique<Attached>(to, options);
}

}  // namespace troupe
