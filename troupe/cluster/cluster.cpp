#include "troupe/cluster/cluster.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "actors/cluster/join.h"
#include "actors/worker/guests.h"
#include "actors/worker/reports.h"
#include "core/async/waiting.h"
#include "core/base/build_id.h"
#include "core/base/random_bytes.h"
#include "core/base/shown.h"
#include "net/address.h"
#include "net/sim/network.h"
#include "net/socket/loop/own_address.h"
#include "net/socket/loop/sockets.h"
#include "ops/dispatch/threads.h"
#include "rref/ref_table.h"
#include "troupe/checkpoint/job_messages.h"
#include "troupe/checkpoint/job_saver.h"
#include "troupe/checkpoint/rehearsal.h"
#include "troupe/claims/claim_desk.h"
#include "troupe/cluster/worker_stack.h"
#include "troupe/launch/stop.h"
#include "troupe/launch/stop_request.h"
#include "troupe/ways/ways_of_worker.h"

namespace troupe {
namespace {

constexpr Duration kLastWords = std::chrono::seconds(1);  // to those that come to a meeting that has failed

// 2 for "w2"; empty for what is no worker's name.
std::optional<uint32_t> number_of(const std::string& name) {
  uint32_t number = 0;
  if (name.starts_with('w')) std::from_chars(name.data() + 1, name.data() + name.size(), number);
  return name == "w" + std::to_string(number) ? std::optional(number) : std::nullopt;
}

// `count`: of workers.
void check_names(const std::vector<DeviceMap>& maps, int count) {
  for (const DeviceMap& m : maps)
    for (const std::string& name : {m.worker, m.other}) {
      if (const auto number = number_of(name); number && *number < static_cast<uint32_t>(count)) continue;
      throw_invalid("[cluster] a device map names worker '" + shown(name) + "'; there are w0 to w" +
                    std::to_string(count - 1));
    }
}

// The maps of one worker, by the other's name; its own devices have to be there.
std::map<std::string, internal::net::DeviceMap> maps_of(const std::string& worker,
                                                        const std::vector<DeviceMap>& all) {
  std::map<std::string, internal::net::DeviceMap> out;
  for (const DeviceMap& m : all) {
    if (m.worker == m.other)
      throw_invalid("[cluster] a device map from " + m.worker +
                    " to itself; tensors stay there where they are");
    if (m.worker != worker && m.other != worker) continue;
    const std::string other = m.worker == worker ? m.other : m.worker, between = worker + " to " + other;
    internal::net::DeviceMap::Pairs pairs;
    for (const auto& [left, right] : m.devices) {
      const std::string &mine = m.worker == worker ? left : right,
                        &theirs = m.worker == worker ? right : left;
      try {
        pairs.emplace_back(Device(mine), device_named(theirs));
      } catch (const Error& e) {
        throw Error(e.kind(), "[cluster] in the device map from " + between + ": " + e.message());
      }
    }
    if (pairs.empty()) throw_invalid("[cluster] the device map from " + between + " is empty");
    if (!out.emplace(other, internal::net::DeviceMap(std::move(pairs), between)).second)
      throw_invalid("[cluster] two device maps between " + worker + " and " + other +
                    "; one holds in both directions");
  }
  return out;
}

class InProcess final : public Cluster {
 public:
  InProcess(int count, internal::actors::TypeRegistry hosting, ClusterOptions options)
      : Cluster(options), cores_(count) {
    if (count < 1) throw_invalid("[cluster] needs at least one worker, got " + std::to_string(count));
    auto runtime = internal::actors::Runtime::make(options.threads);
    const std::string token = internal::random_hex(8) + internal::random_hex(8);
    check_names(options.device_maps, count);
    for (int i = 0; i < count; ++i) {
      const auto id = static_cast<WorkerId>(i);
      stacks_.push_back(std::make_unique<WorkerStack>(internal::actors::WorkerOptions{
          .id = id,
          .name = "w" + std::to_string(i),
          .host = "local",
          .hosting = hosting,
          .runtime = runtime,
          .timeout = options.timeout,
          .device_maps = maps_of("w" + std::to_string(i), options.device_maps),
          .limits = options.limits,
          .on_full = options.on_full}));
      internal::JobSaver::install(stacks_.back()->worker(), options.checkpoints.dir);
    }
    connect_in_memory(stacks_, network_, token);
    table_ = stacks_.front()->references();
    worker_ = &stacks_.front()->worker();
  }
  ~InProcess() override {
    if (!begin_end()) return;
    look_for_leaks();
    InProcess::end({});
  }
  std::vector<internal::actors::Worker*> workers_here() const override {
    std::vector<internal::actors::Worker*> all;
    for (auto& stack : stacks_) all.push_back(&stack->worker());
    return all;
  }

 private:
  std::vector<std::string> end(Duration) override {
    for (auto& stack : stacks_)
      stack->worker().stop();  // all at once: none takes the end of another for a loss
    for (auto& stack : stacks_) stack->stop_listening();
    return {};
  }
  internal::SharedCores cores_;
  internal::net::Network network_;
  WorkerStacks stacks_;
};

// One worker of a cluster of processes.
struct Process : WorkerStack {
  Process(const LaunchEnvironment& e, internal::actors::TypeRegistry hosting, const ClusterOptions& options)
      : WorkerStack({.id = e.rank,
                     .name = "w" + std::to_string(e.rank),
                     .host = internal::actors::host_identity(),
                     .hosting = std::move(hosting),
                     .runtime = internal::actors::Runtime::make(options.threads),
                     .timeout = options.timeout,
                     .device_maps = maps_of("w" + std::to_string(e.rank), options.device_maps),
                     .limits = options.limits,
                     .on_full = options.on_full}) {
    if (!options.elastic) check_names(options.device_maps, static_cast<int>(e.world));
    internal::JobSaver::install(worker(), options.checkpoints.dir);
    if (e.control) worker().extension<internal::actors::Guests>()->allow_control();
  }
  /// Opens the transport; everything that serves messages has been installed.
  void open(const LaunchEnvironment& e, const ClusterOptions& options) {
    const bool meets = e.rank != 0 || e.world > 1 || options.elastic;
    if (meets && (e.address.empty() || e.token.empty()))
      throw_invalid(
          "[launch] an elastic cluster says where others join, and how they prove that they may: set "
          "TROUPE_ADDRESS=tcp:HOST:PORT, and TROUPE_TOKEN_FILE to a file that only you can read");
    const auto limit = std::min<Duration>(options.join_timeout, std::chrono::seconds(10));
    use_launched(e, meets ? e.token : internal::random_hex(8) + internal::random_hex(8),
                 options.join_timeout);
    if (e.rank == 0 && meets) listen_as_driver(e, limit);
    if (e.rank != 0) {
      listen(internal::net::abstract_address("troupe-" + internal::random_hex(8)));
      if (!e.bind.empty() && !internal::net::is_local(e.address)) listen_at(e);
    }
  }
  /// Once worker 0 has been reached: listens where its host reaches this one, unless somebody has said where.
  void listen_towards_driver(const LaunchEnvironment& e, internal::actors::Member& self, Duration limit) {
    if (!e.bind.empty() || internal::net::is_local(e.address)) return;
    const auto own = internal::net::own_address_towards(e.address, limit);
    listen("tcp:" + (own.listen.empty() ? "127.0.0.1" : own.listen) + ":0");
    const std::string actual = member().addresses.back(), port = actual.substr(actual.rfind(':'));
    if (own.listen.empty()) self.addresses.push_back(actual);
    for (const std::string& host : own.reached_at) self.addresses.push_back("tcp:" + host + port);
  }
  /// Once all have come.
  void met() { internal::set_processes_here(worker().members().count_on(worker().host())); }
  void listen_as_driver(const LaunchEnvironment& e, Duration limit) {
    try {
      listen(internal::net::address_to_listen_on(e.address, limit));
    } catch (const Error& error) {
      if (!e.address_note.empty()) throw_error(error.kind(), error.message() + ". " + e.address_note);
      if (error.message().find(internal::net::errno_text(EADDRINUSE)) == std::string::npos) throw;
      throw_error(error.kind(), error.message() +
                                    ". Another job or program has that address: give this one another, by "
                                    "MASTER_PORT or TROUPE_ADDRESS, the same for all workers, or by "
                                    "--master-port of troupe run");
    }
  }
  void listen_at(const LaunchEnvironment& e) {
    try {
      listen(e.bind_address());
    } catch (const Error& error) {
      if (e.bind.empty()) throw;
      throw_error(error.kind(), "[launch] TROUPE_BIND is '" + e.bind +
                                    "'; expected an address of this host: " + error.message());
    }
  }
};

class Coordinated final : public Cluster {
 public:
  Coordinated(const LaunchEnvironment& e, internal::actors::TypeRegistry hosting,
              const ClusterOptions& options, const Future<void>& stop)
      : Cluster(options, e.elastic.value_or(ElasticJob())),
        process_(e, std::move(hosting), options),
        coordinator_(process_.worker(), {0, process_.worker().name(), process_.worker().host(), {e.address}},
                     e.world, options.elastic,
                     {internal::build_id(), e.job, e.elastic ? e.elastic->text() : ""}) {
    worker_ = &process_.worker();
    table_ = process_.references();
    internal::kAskToStop.serve(*worker_, [this](const internal::actors::Invocation& call, int64_t signal) {
      if (internal::stop_asked()) return true;
      if (options_.elastic) return note_leaver(worker_->members().name_of(call.from()));
      return internal::ask_to_stop(signal == SIGINT ? SIGINT : SIGTERM,
                                   worker_->members().name_of(call.from()));
    });
    worker_->extension<internal::ClaimDesk>()->reserve([this](WorkerId id) {
      const auto names = spares();
      return std::ranges::find(names, worker_->members().name_of(id)) != names.end();
    });
    try {
      process_.open(e, options);
      coordinator_.wait(options.join_timeout, stop);
      process_.met();
    } catch (...) {
      const ErrorKind kind = current_error().kind();
      if (kind == ErrorKind::invalid || kind == ErrorKind::disconnected) coordinator_.tell_all(kLastWords);
      leave();
      throw;
    }
  }
  ~Coordinated() override {
    if (begin_end()) Coordinated::end(options_.shutdown_timeout);
  }
  std::vector<internal::actors::Worker*> workers_here() const override { return {worker_}; }

 private:
  Future<void> close_doors() override {
    worker_->extension<internal::ClaimDesk>()->close();
    return coordinator_.close();
  }
  std::vector<std::string> end(Duration grace) override {
    std::vector<std::string> silent;
    for (const auto& [name, error] : coordinator_.shut_down(exit_code_, grace))
      if (error.kind() == ErrorKind::deadline) silent.push_back(name);
    leave();
    return silent;
  }
  void leave() {  // the coordinator's services end before it does
    process_.disconnect();
  }
  Process process_;
  internal::actors::Coordinator coordinator_;
};

class Joined final : public WorkerProcess {
 public:
  Joined(const LaunchEnvironment& e, internal::actors::TypeRegistry hosting, const ClusterOptions& options)
      : process_(e, std::move(hosting), options), joiner_(process_.worker(), internal::build_id()) {
    internal::kLetGo.serve(process_.worker(), [gone = let_go_] { gone.set(); });
    try {
      process_.open(e, options);
      joiner_.join(e.address, process_.member(), e.world, options.join_timeout,
                   [&](internal::actors::Member& self) {
                     process_.listen_towards_driver(e, self, options.join_timeout);
                   });
      process_.met();
    } catch (const Error& error) {
      disconnect();
      const bool of_token = error.message().find("the cluster token") != std::string::npos;
      if (!of_token || e.token_note.empty()) throw;
      throw_error(error.kind(), error.message() + ". " + e.token_note);
    } catch (...) {
      disconnect();
      throw;
    }
  }
  ~Joined() override { disconnect(); }
  internal::actors::Worker& worker() override { return process_.worker(); }
  Future<int> ended() const override { return joiner_.ended(); }
  int serve(const Future<int>& stop) override {
    stop.on_ready([this](const Result<int>& code) {
      if (code.ok() && let_go_.future().is_ready()) {  // of a message, which must not wait
        (void)joiner_.leave(code.value());
        return;
      }
      // A Ctrl-C reaches all workers: worker 0 ends the cluster then, and should not see us leave before it
      // knows.
      if (!code.ok() || joiner_.ended().wait_for(std::chrono::seconds(1))) return;
      (void)joiner_.leave(code.value()).wait_for(std::chrono::seconds(5));
      joiner_.end(code.value());
    });
    const auto run_queue = process_.worker().runtime().make_run_queue();
    const ServeScope serving(run_queue.get());
    return joiner_.ended().get();
  }
  void leave() override { joiner_.leave(0).get(); }
  Future<void> let_go() const override { return let_go_.future(); }

 private:
  void disconnect() {
    end_refused_child("the end of a worker");
    // The joiner's services end before it does.
    process_.disconnect();
  }
  Process process_;
  internal::actors::Joiner joiner_;
  const Promise<void> let_go_;
};

}  // namespace

std::unique_ptr<Cluster> Cluster::in_process(int workers, internal::actors::TypeRegistry hosting,
                                             ClusterOptions options) {
  return std::make_unique<InProcess>(workers, with_builtin_types(std::move(hosting)), options);
}

std::unique_ptr<Cluster> Cluster::coordinate(const LaunchEnvironment& environment,
                                             internal::actors::TypeRegistry hosting, ClusterOptions options,
                                             const Future<void>& stop) {
  options.join_timeout = environment.join_timeout.value_or(options.join_timeout);
  options.elastic = options.elastic || environment.elastic;
  return std::make_unique<Coordinated>(environment, with_builtin_types(std::move(hosting)), options, stop);
}

std::unique_ptr<WorkerProcess> WorkerProcess::join(const LaunchEnvironment& environment,
                                                   internal::actors::TypeRegistry hosting,
                                                   ClusterOptions options) {
  options.join_timeout = environment.join_timeout.value_or(options.join_timeout);
  options.elastic = options.elastic || environment.elastic;
  return std::make_unique<Joined>(environment, with_builtin_types(std::move(hosting)), options);
}

std::vector<std::string> Cluster::workers() const {
  std::vector<std::string> names;
  const internal::Lock lock(members_mutex_);
  for (const auto& m : worker_->members().all())
    if (!is_spare(m) && !let_go_.contains(m.name)) names.push_back(m.name);
  return names;
}

bool Cluster::is_spare(const internal::actors::Member& member) const {
  return elastic_job_.start > 0 && member.id >= elastic_job_.start && !used_spares_.contains(member.name);
}

std::vector<std::string> Cluster::spares() const {
  std::vector<std::string> names;
  const internal::Lock lock(members_mutex_);
  for (const auto& m : worker_->members().all())
    if (is_spare(m) && !leaving_.contains(m.name)) names.push_back(m.name);
  return names;
}

void Cluster::use_spare(const std::string& worker) {
  const internal::Lock lock(members_mutex_);
  used_spares_.insert(worker);
}

void Cluster::let_leave_between_steps() {
  const internal::Lock lock(members_mutex_);
  leave_between_steps_ = true;
}

bool Cluster::note_leaver(const std::string& worker) {
  const internal::Lock lock(members_mutex_);
  if (leave_between_steps_) leaving_.insert(worker);
  return leave_between_steps_;
}

std::vector<std::string> Cluster::leaving() const {
  std::vector<std::string> names;
  const internal::Lock lock(members_mutex_);
  for (const auto& m : worker_->members().all())
    if (leaving_.contains(m.name)) names.push_back(m.name);
  return names;
}

void Cluster::let_go(const std::string& worker) {
  {
    const internal::Lock lock(members_mutex_);
    let_go_.insert(worker);
  }
  (void)internal::kLetGo.tell(*worker_, worker_->members().id_of(worker));
}

void Cluster::begin_again() {
  {
    const internal::Lock lock(members_mutex_);
    leave_between_steps_ = false;
    for (const WorkerId id : worker_->members().lost()) of_before_.insert(id);
  }
  table_->count_anew();
  internal::note_started_again();
}

bool Cluster::is_of_before(WorkerId worker) const {
  const internal::Lock lock(members_mutex_);
  return of_before_.contains(worker);
}

Future<void> Cluster::joined(const std::string& worker) {
  const auto number = number_of(worker);
  if (!number) throw_invalid("[cluster] '" + shown(worker) + "' is no worker's name; expected w0, w1, ...");
  if (!options_.elastic && !worker_->members().find(*number))
    throw_invalid("[cluster] " + worker + " will never join: the cluster is not elastic. The workers are: " +
                  worker_->members().who_is_there());
  return worker_->members().listed(worker);
}

std::map<std::string, int64_t> Cluster::metrics(const std::string& worker) {
  return internal::actors::kMetrics.ask(*worker_, worker_->members().id_of(worker)).get();
}

Ways Cluster::ways() { return internal::ways_of_all(*worker_); }

}  // namespace troupe
