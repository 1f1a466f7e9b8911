#include "troupe/cluster/attach.h"

#include <algorithm>

#include "actors/cell/interceptor.h"
#include "actors/cluster/join.h"
#include "actors/worker/guests.h"
#include "net/socket/socket_transport.h"
#include "troupe/claims/claimed.h"
#include "troupe/cluster/worker_stack.h"
#include "troupe/watch/running_job.h"

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
  Manners(internal::actors::Worker& worker, bool control) : worker_(worker), control_(control) {}
  void outgoing_call(const internal::actors::CallerState& caller, internal::net::Call& call) override {
    const bool to_actor = call.target.number != 0;
    const WorkerId to = call.target.owner;
    if (to == worker_.id() || (!to_actor && lists_method(kOpenToGuests, call.method))) return;
    const bool controls = to_actor || lists_method(kOpenToControl, call.method);
    if (controls && control_) {
      if (!call.context || worker_.extension<internal::Claimed>()->has(to)) return;
      const std::string name = worker_.members().name_of(to);
      throw_invalid("[call] " + caller.label + " is called in a context, and this guest has not claimed " +
                    name + ": gradients run through workers that it has, as by Claim(cluster, {\"" + name +
                    "\"})");
    }
    throw_invalid("[call] a guest of a job may not call " + caller.label +
                  (controls ? ": the job was started without --control of troupe run" : ""));
  }

 private:
  internal::actors::Worker& worker_;
  const bool control_;
};

class Attached final : public Cluster {
 public:
  Attached(const internal::watch::Attachment& to, const ClusterOptions& options)
      : Cluster(options),
        stack_({.id = to.id,
                .name = internal::actors::guest_name(to.id),
                .host = internal::actors::host_identity(),
                .runtime = internal::actors::Runtime::make(options.threads),
                .timeout = options.timeout,
                .limits = options.limits,
                .on_full = options.on_full}) {
    worker_ = &stack_.worker();
    table_ = stack_.references();
    for (const auto& member : to.members) worker_->members().add(member);
    worker_->add_extension(std::make_unique<Manners>(*worker_, to.control));
    internal::net::SocketLimits limits;
    if (!to.shared_memory) limits.ring_bytes = limits.arena_bytes = 0;
    stack_.use_sockets(to.pass, limits, "", to.encryption, to.certificate);
  }
  ~Attached() override {
    if (begin_end()) Attached::end({});
  }
  std::vector<internal::actors::Worker*> workers_here() const override { return {worker_}; }

 private:
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

std::unique_ptr<Cluster> attach(const std::string& job, const ClusterOptions& options) {
  const auto found = internal::watch::running_jobs(job);
  if (found.empty())
    throw_invalid("[attach] no job of yours runs on this host whose name or program begins with '" + job +
                  "': troupe ps lists those that do");
  if (found.size() > 1) {
    std::string names;
    for (const auto& one : found)
      names +=
          (names.empty() ? "" : ", ") + one.job + " (" + internal::watch::program_of(one.doors[0].pid) + ")";
    throw_invalid("[attach] several jobs run here, name one: " + names);
  }
  const std::string answer = found[0].ask("attach");
  if (answer.empty())
    throw_error(ErrorKind::disconnected, "[attach] job " + found[0].job + " does not answer");
  return attach(internal::watch::Attachment::parse(answer), options);
}

}  // namespace troupe
