#include "actors/worker/reports.h"

#include <algorithm>

#include "actors/cell/actor_cell.h"
#include "core/memory/backend.h"

namespace troupe::internal::actors {
namespace {

// As they travel.
struct Slot {
  std::string name, type;
};
struct Callable {
  uint64_t id = 0;
  bool listed = false;
  std::string name, text, result;
  std::vector<Slot> parameters;
};
struct Type {
  std::string name;
  std::vector<Callable> constructors, methods;
};
struct Doer {
  WorkerId owner = 0, creator = 0;
  uint64_t number = 0;
  std::string label, type, doing;
  double seconds = 0;
  int64_t queued = 0, calls = 0;
  double busy = 0;
};
struct Everything {
  std::vector<Doer> actors;
  int64_t more_actors = 0;
  std::vector<MethodReport> methods;
  Progress::State progress;
  ProcessFacts process;
  double clock = 0;
  std::map<std::string, int64_t> metrics;
};

/// Anybody to any worker: a tool asks for the types of its program.
constexpr Service<std::vector<Type>()> kTypes{"worker.types", {.in_context = true}};
/// Anybody to any worker: a tool asks what it is doing.
constexpr Service<Everything(int64_t most_actors)> kReport{"worker.report", {.in_context = true}};

std::vector<Slot> slots_of(const std::vector<ActorType::Parameter>& parameters) {
  std::vector<Slot> out;
  for (const auto& p : parameters) out.push_back({p.name, p.type});
  return out;
}

Type described(const ActorType& type) {
  Type out{type.name, {}, {}};
  for (const auto& c : type.all_constructors())
    out.constructors.push_back({c.id, c.listed, type.name, c.text, "", slots_of(c.parameters)});
  for (const auto& m : type.methods)
    out.methods.push_back({m.id, true, m.name, m.text, m.result, slots_of(m.parameters)});
  return out;
}

std::vector<Type> all_of(const Worker& worker) {
  std::vector<Type> out;
  std::vector<std::shared_ptr<const ActorType>> types = worker.hosting();
  for (auto& type : all_types()) types.push_back(std::move(type));
  for (const auto& type : types)
    if (std::ranges::find(out, type->name, &Type::name) == out.end()) out.push_back(described(*type));
  std::ranges::sort(out, {}, &Type::name);
  return out;
}

troupe::Entry entry_of(Callable callable) {
  troupe::Entry out{std::move(callable.name), std::move(callable.text), {}, std::move(callable.result)};
  for (Slot& slot : callable.parameters)
    out.parameters.push_back({std::move(slot.name), std::move(slot.type)});
  return out;
}

std::vector<TypeReport> reports_of(std::vector<Type> types) {
  std::vector<TypeReport> out;
  for (Type& type : types) {
    TypeReport& report = out.emplace_back();
    report.name = type.name;
    for (Callable& c : type.constructors) {
      const uint64_t id = c.id;
      const bool listed = c.listed;
      report.constructors.push_back({id, listed, entry_of(std::move(c))});
    }
    for (Callable& m : type.methods) report.methods.push_back(entry_of(std::move(m)));
  }
  return out;
}

double seconds_of_ns(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Adds up methods of a type, and its parts of backward passes, as ActorCell::handled() has them.
void add_up(std::map<std::string, HandledCount>& all, const Worker& worker, const ActorType& type,
            const std::vector<HandledCount>& handled) {
  const auto& common = worker.as_host().actor_methods;
  for (size_t i = 0; i < handled.size(); ++i) {
    if (!handled[i].calls) continue;
    const size_t own = type.methods.size();
    all[i < own                   ? type.name + "::" + type.methods[i].name
        : i - own < common.size() ? type.name + ": " + common[i - own].name
                                  : type.name + ": backward"] += handled[i];
  }
}

// Worker::metrics(), and what takes longer to find out.
Worker::Metrics metrics_of(const Worker& worker, const HandledCount& handled, int64_t queued,
                           const ProcessFacts& process) {
  Worker::Metrics m = worker.metrics();
  m["queued_calls"] = queued;
  m["handled_calls_total"] = handled.calls;
  m["busy_us_total"] = handled.busy_ns / 1000;
  m["steps_total"] = worker.progress().state(worker.clock().now()).steps;
  m["process_memory_bytes"] = process.memory;
  m["process_cpu_us_total"] = static_cast<int64_t>(process.cpu * 1e6);
  for (const Device device : all_devices()) {
    const std::string name = device.is_cpu() ? "tensor" : device.str();
    m[name + "_memory_bytes"] = static_cast<int64_t>(allocator_stats(device).in_use);
  }
  return m;
}

Everything everything_of(const Worker& worker, int64_t most_actors) {
  Everything out;
  HandledCount sum;
  int64_t queued = 0;
  std::map<std::string, HandledCount> methods;
  for (const auto& [type, handled] : worker.live_cells().retired()) add_up(methods, worker, *type, handled);
  for (const auto& cell : worker.actors().all()) {
    const std::vector<HandledCount> handled = cell->handled();
    add_up(methods, worker, cell->type(), handled);
    HandledCount whole;
    for (const HandledCount& one : handled) whole += one;
    queued += cell->queued();
    CurrentActivity& activity = cell->activity();
    const char* what = activity.what();
    const Duration busy =
        what ? std::max<Duration>(worker.clock().now() - activity.since(), Duration(0)) : Duration(0);
    out.actors.push_back({cell->id().owner, cell->id().creator, cell->id().number, cell->label(),
                          cell->type().name, what ? what : "", std::chrono::duration<double>(busy).count(),
                          cell->queued(), whole.calls, seconds_of_ns(whole.busy_ns)});
  }
  std::ranges::sort(out.actors, {}, &Doer::number);
  if (const auto there = static_cast<int64_t>(out.actors.size()); there > most_actors) {
    // The longest queues, and of these the busiest actors, are of interest first.
    std::ranges::stable_sort(out.actors, std::greater(),
                             [](const Doer& d) { return std::pair(d.queued, d.busy); });
    out.actors.resize(static_cast<size_t>(std::max<int64_t>(most_actors, 0)));
    out.more_actors = there - most_actors;
  }
  for (const auto& [name, count] : methods) {
    sum += count;
    out.methods.push_back({name, count.calls, seconds_of_ns(count.busy_ns), seconds_of_ns(count.queued_ns)});
  }
  out.progress = worker.progress().state(worker.clock().now());
  out.process = process_facts();
  out.clock = std::chrono::duration<double>(worker.clock().now().time_since_epoch()).count();
  out.metrics = metrics_of(worker, sum, queued, out.process);
  return out;
}

WorkerReport report_by(const std::string& worker, const Everything& all) {
  WorkerReport out{worker,       {},          all.more_actors, all.methods,
                   all.progress, all.process, all.clock,       all.metrics};
  for (const Doer& d : all.actors)
    out.actors.push_back(
        {{d.owner, d.creator, d.number}, d.label, d.type, d.doing, d.seconds, d.queued, d.calls, d.busy});
  return out;
}

}  // namespace

void install_reports(Worker& worker) {
  kMetrics.serve(worker, [&worker] { return everything_of(worker, 0).metrics; });
  kTypes.serve(worker, [&worker] { return all_of(worker); });
  kReport.serve(worker, [&worker](int64_t most_actors) { return everything_of(worker, most_actors); });
}

Future<std::vector<TypeReport>> ask_types(Worker& worker, WorkerId of) {
  return kTypes.ask(worker, of).then([](const std::vector<Type>& types) { return reports_of(types); });
}

Future<WorkerReport> ask_report(Worker& worker, WorkerId of, int64_t most_actors) {
  return kReport.ask(worker, of, most_actors)
      .then([name = worker.members().name_of(of)](const Everything& all) { return report_by(name, all); });
}

WorkerReport report_of(const Worker& worker, int64_t most_actors) {
  return report_by(worker.name(), everything_of(worker, most_actors));
}

std::vector<TypeReport> types_of(const Worker& worker) { return reports_of(all_of(worker)); }

}  // namespace troupe::internal::actors
