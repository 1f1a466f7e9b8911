#include "troupe/cluster/worker_stack.h"

#include <atomic>

#include "actors/cluster/profiler.h"
#include "autograd/distributed/dist_engine.h"
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "autograd/distributed/optim/hosted_module.h"
#include "autograd/distributed/optim/module_actor.h"
#include "collective/engine.h"
#include "llm/adapters.h"
#include "llm/model_server.h"
#include "llm/pretrained.h"
#include "net/sim/network.h"
#include "net/socket/socket_transport.h"
#include "parallel/data/replica.h"
#include "parallel/data/replica_average.h"
#include "parallel/feed/feed_metrics.h"
#include "parallel/feed/feed_readers.h"
#include "parallel/mesh/actor_mesh.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/stage/stage_work.h"
#include "parallel/server/server_actors.h"
#include "parallel/server/server_backup.h"
#include "parallel/staleness/staleness_metrics.h"
#include "parallel/tensor/meetings.h"
#include "parallel/tensor/whole_model.h"
#include "troupe/claims/claim_desk.h"
#include "troupe/claims/claimed.h"
#include "troupe/watch/report_text.h"
#include "troupe/ways/ways_of_worker.h"

namespace troupe {
namespace {

std::shared_ptr<internal::rref::RefTable> install_layers(internal::actors::Worker& worker) {
  internal::actors::Profiler::install(
      worker);  // first: it sees calls as they are made, and the others use it
  auto& engine = autograd::DistEngine::install(worker);
  auto table = internal::rref::RefTable::install(
      worker);  // behind it: a result that autograd refuses is granted to nobody
  internal::install_optimized_actors(worker);
  internal::collective::GroupEngine::install(worker);
  internal::collective::GroupEngine::of(worker).record_by(engine.group_gradients());
  internal::install_modules(worker);
  parallel::install_replicas(worker);
  parallel::install_replica_average(worker);
  parallel::install_server_backups(worker);
  parallel::install_pipeline(worker);
  parallel::StalenessMetrics::install(worker);
  internal::install_feed_metrics(worker);
  parallel::install_meshes(worker);
  parallel::install_whole_models(worker);
  llm::install_pretrained(), llm::install_adapters();
  tp::MeetingsOfWorker::install(worker);
  internal::WaysOfWorker::install(worker);
  internal::watch::install_report_text(worker);
  internal::Claimed::install(worker, table);
  if (worker.id() == 0) internal::ClaimDesk::install(worker);
  return table;
}

std::string address_in_memory(const std::string& name) { return "sim:" + name; }

// Connections for the turns of devices, which have a thread of their own.
void connect_devices(internal::actors::Worker& worker, const std::string& token, const std::string& job,
                     Encryption encryption) {
  auto& devices = internal::collective::GroupEngine::of(worker).devices();
  if (encryption != Encryption::off)
    return devices.stay_out("links are encrypted, and those of NCCL are not (TROUPE_TLS)");
  devices.set_transport([&worker, token, job](internal::net::Events& events) {
    internal::net::SocketLimits limits;
    limits.ring_bytes = limits.arena_bytes = 0;
    limits.polling = Duration::zero();
    limits.callers_read = false;
    return internal::net::make_socket_transport({{worker.id(), worker.name()}, token, limits, nullptr, job},
                                                events);
  });
}

}  // namespace

internal::actors::TypeRegistry with_builtin_types(internal::actors::TypeRegistry hosting) {
  for (auto& type : nn::hosted_module_types(hosting)) hosting.push_back(std::move(type));
  for (auto& type : parallel::builtin_actors()) hosting.push_back(std::move(type));
  for (auto& type : llm::builtin_actors()) hosting.push_back(std::move(type));
  for (auto& type : internal::parallel::server_actors()) hosting.push_back(std::move(type));
  for (auto& type : troupe::hosting<internal::FeedReader>()) hosting.push_back(type);
  return hosting;
}

WorkerStack::WorkerStack(internal::actors::WorkerOptions options)
    : worker_(std::make_shared<internal::actors::Worker>(std::move(options))),
      references_(install_layers(*worker_)) {}

WorkerStack::~WorkerStack() {
  stop_listening();
  worker_->end();
}

void WorkerStack::use_memory(internal::net::Network& network, const std::string& token) {
  const std::string& name = worker_->name();
  worker_->set_transport(
      network.make_transport(name, {.self = {worker_->id(), name}, .token = token, .limits = {}}, *worker_));
  connect_devices(*worker_, token, "", Encryption::off);
  listen(address_in_memory(name));
}

void WorkerStack::use_sockets(const std::string& token, const internal::net::SocketLimits& limits,
                              const std::string& job, Encryption encryption, const Certificate& certificate) {
  const auto processes = std::make_shared<std::atomic<int>>(1);
  const auto count = [&members = worker_->members(), host = worker_->host(), processes] {
    *processes = members.count_on(host);
  };
  worker_->members().watch(count);
  count();
  worker_->set_transport(internal::net::make_socket_transport({{worker_->id(), worker_->name()},
                                                               token,
                                                               limits,
                                                               processes,
                                                               job,
                                                               encryption,
                                                               certificate,
                                                               /*guests=*/true},
                                                              *worker_));
  connect_devices(*worker_, token, job, encryption);
}

void WorkerStack::use_launched(const LaunchEnvironment& environment, const std::string& token,
                               Duration connect) {
  internal::net::SocketLimits limits;
  limits.connect = std::min(limits.connect, connect);
  if (!environment.polling) limits.polling = Duration::zero();
  limits.callers_read = environment.callers_read;
  if (!environment.shared_memory) limits.ring_bytes = limits.arena_bytes = 0;
  use_sockets(token, limits, environment.job, environment.encryption, environment.certificate);
}

void WorkerStack::listen(const std::string& address) {
  listeners_.push_back(worker_->transport().listen(address));
  addresses_.push_back(listeners_.back()->address());
}

void WorkerStack::disconnect() {
  stop_listening();
  worker_->disconnect();
}

internal::actors::Member WorkerStack::member() const {
  return {worker_->id(), worker_->name(), worker_->host(), addresses_};
}

void connect_in_memory(const WorkerStacks& all, internal::net::Network& network, const std::string& token) {
  for (const auto& stack : all) {
    for (const auto& other : all) {
      const internal::actors::Worker& w = other->worker();
      stack->worker().members().add({w.id(), w.name(), w.host(), {address_in_memory(w.name())}});
    }
    stack->use_memory(network, token);
  }
}

}  // namespace troupe
