#include "actors/worker/reports.h"

#include <algorithm>

#include "actors/cell/actor_cell.h"

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
};
struct Everything {
  std::vector<Doer> actors;
  std::map<std::string, int64_t> metrics;
};
struct Waiting {
  std::string label, to, status;
  double seconds = 0;
};

/// Anybody to any worker: a tool asks for the types of its program.
constexpr Service<std::vector<Type>()> kTypes{"worker.types", {.in_context = true}};
/// Anybody to any worker: a tool asks what it is doing.
constexpr Service<Everything()> kReport{"worker.report", {.in_context = true}};
/// Anybody to any worker: a tool asks for the calls that it waits for.
constexpr Service<std::vector<Waiting>()> kWaits{"worker.waits", {.in_context = true}};

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

Everything everything_of(const Worker& worker) {
  Everything out;
  for (const auto& cell : worker.actors()) {
    CurrentActivity& activity = cell->activity();
    const char* what = activity.what();
    const Duration busy =
        what ? std::max<Duration>(worker.clock().now() - activity.since(), Duration(0)) : Duration(0);
    out.actors.push_back({cell->id().owner, cell->id().creator, cell->id().number, cell->label(),
                          cell->type().name, what ? what : "", std::chrono::duration<double>(busy).count()});
  }
  std::ranges::sort(out.actors, {}, &Doer::number);
  out.metrics = worker.metrics();
  return out;
}

}  // namespace

void install_reports(Worker& worker) {
  kMetrics.serve(worker, [&worker] { return worker.metrics(); });
  kTypes.serve(worker, [&worker] { return all_of(worker); });
  kReport.serve(worker, [&worker] { return everything_of(worker); });
  kWaits.serve_later(worker, [&worker](const Ref<Invocation>& call) {
    worker.tell_waits([&worker, call](const std::vector<Worker::Wait>& waits) {
      std::vector<Waiting> out;
      for (const auto& w : waits)
        out.push_back({w.label, worker.members().name_of(w.to), w.status,
                       std::chrono::duration<double>(w.age).count()});
      kWaits.answer(*call, std::move(out));
    });
  });
}

Future<std::vector<TypeReport>> ask_types(Worker& worker, WorkerId of) {
  return kTypes.ask(worker, of).then([](const std::vector<Type>& types) { return reports_of(types); });
}

Future<WorkerReport> ask_report(Worker& worker, WorkerId of) {
  return kReport.ask(worker, of).then([name = worker.members().name_of(of)](const Everything& all) {
    WorkerReport out{name, {}, all.metrics};
    for (const Doer& d : all.actors)
      out.actors.push_back({{d.owner, d.creator, d.number}, d.label, d.type, d.doing, d.seconds});
    return out;
  });
}

Future<std::vector<WaitReport>> ask_waits(Worker& worker, WorkerId of) {
  return kWaits.ask(worker, of)
      .then([name = worker.members().name_of(of)](const std::vector<Waiting>& waits) {
        std::vector<WaitReport> out;
        for (const Waiting& w : waits) out.push_back({name, w.label, w.to, w.seconds, w.status});
        return out;
      });
}

std::vector<TypeReport> types_of(const Worker& worker) { return reports_of(all_of(worker)); }

}  // namespace troupe::internal::actors
