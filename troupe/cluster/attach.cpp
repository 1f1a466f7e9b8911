#include "troupe/cluster/attach.h"

#include <fmt/format.h>

#include <algorithm>

#include "actors/cell/interceptor.h"
#include "actors/cluster/join.h"
#include "actors/worker/guests.h"
#include "net/socket/socket_transport.h"
#include "troupe/cluster/worker_stack.h"

namespace troupe {
namespace {

using internal::actors::kOpenToControl;
using internal::actors::kOpenToGuests;

template <size_t N>
bool lists_method(const std::array<std::string_view, N>& names, uint64_t method) {
  return std::ranges::any_of(names, [&](auto name) { return internal::net::method_id(name) == method; });
}

// Refuses here what the job would refuse: there, a message that nobody answers would end the connection.
class Manners final : public internal::actors::Interceptor {
 public:
  Manners(WorkerId self, bool control) : self_(self), control_(control) {}
  void outgoing_call(const internal::actors::CallerState& caller, internal::net::Call& call) override {
    const bool to_actor = call.target.number != 0;
    if (call.target.owner == self_ || (!to_actor && lists_method(kOpenToGuests, call.method))) return;
    const bool controls = to_actor || lists_method(kOpenToControl, call.method);
    if (controls && control_) return;
    throw_invalid("[call] a guest of a job may not call " + caller.label +
                  (controls ? ": the job was started without --control of troupe run" : ""));
  }

 private:
  const WorkerId self_;
  const bool control_;
};

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
    worker_->add_extension(std::make_unique<Manners>(to.id, to.control));
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
