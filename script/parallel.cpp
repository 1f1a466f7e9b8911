#include "script/parallel.h"

#include <fmt/format.h>

#include <algorithm>

#include "optim/optimizer.h"
#include "parallel/mesh/actor_mesh.h"
#include "parallel/module/mesh_module.h"
#include "parallel/pipeline/schedule/choose_policy.h"
#include "script/operators.h"
#include "script/options.h"

namespace troupe::script {
namespace {

parallel::Stage stage_of(Session& session, Value value, size_t number) {
  parallel::Stage out;
  const std::string what = fmt::format("[pipeline] stage {}", number);
  if (value.get_if<RefValue>()) {
    out.part.actor = Codec<AnyRef>::from(std::move(value));
    out.part.method = "forward";
  } else if (auto* map = value.get_if<ValueMap>()) {
    Options options(std::move(*map), what);
    out.part.actor = options.take("actor", AnyRef());
    out.part.method = options.take("method", std::string("forward"));
    out.part.loss = options.take("loss", std::string());
    const auto gives = options.take("gives", std::vector<std::string>());
    const auto takes = options.take("takes", std::vector<std::string>());
    if (options.take("carries", false)) out = out.carries();
    options.end();
    if (!gives.empty()) out = out.gives(gives);
    if (!takes.empty()) out = out.takes(takes);
  } else {
    throw_invalid(what +
                  ": expected a reference to an actor, or {actor = ..., method = ..., loss = ...}, got " +
                  value.describe());
  }
  if (!out.part.actor) throw_invalid(what + " names no actor");
  const std::vector<Entry> methods = session.methods(out.part.actor);
  if (!methods.empty()) {
    const std::string no = what + ": " + out.part.actor.type() + " has no method";
    out.part.arity = static_cast<int64_t>(find_entry(methods, out.part.method, no).parameters.size());
    if (!out.part.loss.empty()) find_entry(methods, out.part.loss, no);
  }
  return out;
}

parallel::Checkpoint checkpoint_of(const std::string& text) {
  if (text == "never") return parallel::Checkpoint::never;
  if (text == "except_last") return parallel::Checkpoint::except_last;
  if (text == "always") return parallel::Checkpoint::always;
  throw_invalid(
      fmt::format("[pipeline] checkpoint is never, except_last or always, got {:?}", std::string_view(text)));
}

parallel::PipelineOptions pipeline_options(Options& options) {
  parallel::PipelineOptions out;
  out.schedule = options.take("schedule", out.schedule);
  out.micro_batches = options.take("micro_batches", out.micro_batches);
  out.chunks = options.take("chunks", out.chunks);
  out.slices = options.take("slices", out.slices);
  out.checkpoint = checkpoint_of(options.take("checkpoint", std::string("never")));
  out.timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.take("timeout", 60.0)));
  return out;
}

// Of (output, target), by an operator's name.
std::function<Tensor(const Value&, const Value&)> loss_operator(const std::string& loss) {
  find_entry(operators(), loss, "[pipeline] loss: unknown operator");
  return [loss](const Value& output, const Value& target) {
    ValueList result = run_operator(loss, {output, target});
    if (result.empty() || !result[0].get_if<Tensor>())
      throw_invalid("[pipeline] loss: " + loss + " gives no tensor");
    return *result[0].get_if<Tensor>();
  };
}

void check_stages(const MeshPoints& points, const ValueList& stages, const std::string& dim) {
  if (stages.size() != points.size(dim))
    throw_invalid(
        fmt::format("[pipelines] {} stages for dimension {} of size {}: give a module for each stage, or an "
                    "actor for each of the {} points of the mesh",
                    stages.size(), dim, points.size(dim), points.size()));
}

// A stage's module on each of its workers, all with the same initial values.
class StageModules final : public parallel::MeshActors {
 public:
  StageModules(Session& session, const Mesh& mesh, ValueList stages, std::string dim, const char* type)
      : session_(session), stages_(std::move(stages)), dim_(std::move(dim)), type_(type), now_(make(mesh)) {}
  std::vector<AnyRef> all() const override { return now_; }
  void take(const MeshPoints&, const std::vector<AnyRef>& now) override { now_ = now; }
  std::vector<AnyRef> make(const Mesh& mesh) const override {
    const MeshPoints points(mesh.dims());
    const auto workers = parallel::workers_of(mesh);
    std::vector<AnyRef> actors(points.size());
    std::vector<std::optional<Generator::Position>> numbers(stages_.size());
    for (size_t p = 0; p < points.size(); ++p) {
      const size_t stage = points.coordinate(p, dim_);
      if (!numbers[stage]) numbers[stage] = current_stream().position();
      current_stream().set_position(*numbers[stage]);
      actors[p] = session_.spawn(type_, Place(workers[p]), {stages_[stage]});
    }
    return actors;
  }

 private:
  Session& session_;
  const ValueList stages_;
  const std::string dim_;
  const char* const type_;
  std::vector<AnyRef> now_;
};

// A number, or the fields of ExpertsOptions beside it.
void take_experts(Options& options, parallel::CutOptions& cut) {
  Value given = options.take("experts", Value());
  if (given.is_null()) return;
  if (const auto* count = given.get_if<int64_t>()) given = ValueMap{{"count", *count}};
  auto* map = given.get_if<ValueMap>();
  if (!map)
    throw_invalid(
        "[pipelines] option experts: expected their number, or {count = 8, top_k = 2, capacity = 1.25, "
        "normalize = true, shared = 0}, got " +
        given.describe());
  Options fields(std::move(*map), "[pipelines] experts:");
  cut.experts = fields.take("count", cut.experts);
  cut.top_k = fields.take("top_k", std::min<int64_t>(cut.top_k, std::max<int64_t>(cut.experts, 1)));
  cut.capacity = fields.take("capacity", cut.capacity);
  cut.normalize = fields.take("normalize", cut.normalize);
  cut.shared = fields.take("shared", cut.shared);
  fields.end();
  if (cut.experts < 1)
    throw_invalid(fmt::format("[pipelines] experts: count is {}, expected at least 1", cut.experts));
}

parallel::CutOptions cut_options(Options& options, const std::string& stages) {
  parallel::CutOptions cut{.stages = stages};
  const std::string way = options.take("context", std::string("heads"));
  if (way != "heads" && way != "ring")
    throw_invalid(fmt::format("[pipelines] context is heads or ring, got {:?}", std::string_view(way)));
  cut.ring = way == "ring";
  take_experts(options, cut);
  return cut;
}

// Whether the layers of modules are cut over the mesh; `invalid` for a dimension that means nothing to them.
bool cuts_layers(const Mesh& mesh, const parallel::PipelinesDims& dims, const parallel::CutOptions& cut) {
  bool cuts = cut.experts > 0;
  for (const MeshDim& dim : mesh.dims()) {
    if (dim.name == dims.stages || dim.name == dims.replicas) continue;
    if (dim.name != "tp" && dim.name != "cp" && dim.name != "ep")
      throw_invalid(fmt::format(
          "[pipelines] modules have no use for dimension {}: they know {}, {}, tp, cp and ep; give an actor "
          "for each point of the mesh",
          dim.name, dims.stages, dims.replicas));
    if (dim.name == "ep" && dim.size > 1 && !cut.experts)
      throw_invalid(
          "[pipelines] dimension ep divides experts: give their number, {experts = 8}, or call it dp");
    cuts = cuts || dim.size > 1;
  }
  return cuts;
}

// A module's part at each point of the mesh.
std::shared_ptr<parallel::MeshActors> cut_modules_on(Session& session, const Mesh& mesh,
                                                     const ValueList& stages,
                                                     const parallel::PipelineOptions& options,
                                                     const parallel::CutOptions& cut) {
  if (options.shard == parallel::Shard::all)
    throw_invalid(
        "[pipelines] shard all divides whole layers over replicas, and those of this mesh are cut: use "
        "state or gradients");
  return parallel::spawn<parallel::MeshModule>(session.cluster().here(), mesh, stages, cut).shared();
}

}  // namespace

Mesh with_chunks(const Mesh& mesh, const std::string& stages, const parallel::PipelineOptions& options) {
  std::vector<MeshDim> dims = mesh.dims();
  for (MeshDim& d : dims)
    if (d.name == stages && options.chunks > 1)
      d.turns = static_cast<size_t>(options.chunks), d.size *= d.turns,
      d.back = parallel::goes_back(options.schedule);
  return {mesh.all(), std::move(dims)};
}

namespace {

bool has_method(const std::vector<Entry>& methods, const std::string& name) {
  return std::ranges::find(methods, name, &Entry::name) != methods.end();
}

}  // namespace

std::unique_ptr<parallel::Pipeline> make_pipeline(Session& session, ValueList stages, ValueMap given) {
  std::vector<parallel::Stage> made;
  for (Value& stage : stages) made.push_back(stage_of(session, std::move(stage), made.size()));
  Options options(std::move(given), "[pipeline]");
  parallel::PipelineOptions out = pipeline_options(options);
  const std::string loss = options.take("loss", std::string());
  options.end();
  if (!loss.empty()) out.loss = loss_operator(loss);
  return std::make_unique<parallel::Pipeline>(session.cluster().here(), std::move(made), std::move(out));
}

parallel::PipelineOptions mesh_pipeline_options(Options& options) {
  parallel::PipelineOptions out = pipeline_options(options);
  out.shard = parallel::shard_named(options.take("shard", std::string("none")));
  out.gather = parallel::per_named(options.take("gather", std::string("use")));
  out.reduce = parallel::per_named(options.take("reduce", std::string("use")));
  return out;
}

std::unique_ptr<MeshPipelines> make_pipelines(Session& session, const Mesh& workers, ValueList stages,
                                              ValueMap given) {
  Options options(std::move(given), "[pipelines]");
  parallel::PipelineOptions out = mesh_pipeline_options(options);
  parallel::PipelinesDims dims;
  dims.stages = options.take("stages", dims.stages);
  dims.replicas = options.take("replicas", dims.replicas);
  parallel::Stage method;
  method.part.method = options.take("method", std::string("forward"));
  const std::string loss = options.take("loss", std::string());
  const parallel::CutOptions cut = cut_options(options, dims.stages);
  options.end();
  const Mesh mesh = with_chunks(workers, dims.stages, out);
  if (stages.empty()) throw_invalid("[pipelines] there are no stages");
  std::vector<AnyRef> actors;
  std::shared_ptr<parallel::MeshActors> modules;
  if (stages.front().get_if<RefValue>()) {
    if (cut.experts || cut.ring)
      throw_invalid(
          "[pipelines] options context and experts are for modules; the stages are actors, which cut their "
          "layers themselves");
    for (Value& actor : stages) actors.push_back(Codec<AnyRef>::from(std::move(actor)));
  } else {
    check_stages(MeshPoints(mesh.dims()), stages, dims.stages);
    if (cuts_layers(mesh, dims, cut))
      modules = cut_modules_on(session, mesh, stages, out, cut);
    else
      modules =
          std::make_shared<StageModules>(session, mesh, std::move(stages), dims.stages,
                                         out.shard == parallel::Shard::all ? "ShardedModule" : "Module");
    actors = modules->all();
  }
  const std::vector<Entry> methods = session.methods(actors.front());
  method.part.arity = static_cast<int64_t>(
      find_entry(methods, method.part.method, "[pipelines] " + actors.front().type() + " has no method")
          .parameters.size());
  if (has_method(methods, loss))
    method.part.loss = loss;
  else if (!loss.empty())
    out.loss = loss_operator(loss);
  return std::unique_ptr<MeshPipelines>(new MeshPipelines{
      .pipelines = {session.cluster().here(), MeshPoints(mesh.dims()), actors, method, out, dims, modules}});
}

parallel::Served serve_tensors(Session& session, const Value& workers, const Tensors& start, ValueMap given) {
  const std::vector<Place> places = places_of(workers, "[serve]");
  Options options(std::move(given), "[serve]");
  parallel::ServerOptions out;
  parallel::BlockOptions blocks;
  out.policy = options.take("policy", out.policy);
  out.trainers = options.take("trainers", out.trainers);
  out.optimizer = options.take("optimizer", out.optimizer);
  out.lr_by_delay = options.take("lr_by_delay", out.lr_by_delay);
  out.backup = options.take("backup", out.backup);
  blocks.bytes = options.take("block_bytes", blocks.bytes);
  out.options = options.rest();
  (void)optim::make(out.optimizer, out.options,
                    optim::NoParameters{});  // refuses what it does not know, here
  return parallel::serve(session.cluster().here(), places, start, out, blocks);
}

Value report_value(const parallel::StepReport& report) {
  ValueList busy, exposed, live;
  for (const double b : report.busy) busy.emplace_back(b);
  for (const double e : report.exposed) exposed.emplace_back(e);
  for (const int l : report.peak_live) live.emplace_back(int64_t{l});
  return ValueMap{{"schedule", report.schedule},
                  {"workers", int64_t{report.workers}},
                  {"micro_batches", int64_t{report.micro_batches}},
                  {"duration", report.duration},
                  {"bubble", report.bubble()},
                  {"exposed_communication", report.exposed_communication()},
                  {"busy", std::move(busy)},
                  {"exposed", std::move(exposed)},
                  {"peak_live", std::move(live)}};
}

Value report_value(const std::vector<parallel::ServerReport>& report) {
  ValueList out;
  const auto texts = [](const std::vector<std::string>& names) {
    ValueList list;
    for (const std::string& name : names) list.emplace_back(name);
    return list;
  };
  for (const parallel::ServerReport& r : report) {
    ValueMap delays;
    for (const auto& [delay, count] : r.delays) delays[std::to_string(delay)] = count;
    ValueMap weights;
    for (const auto& [delay, weight] : r.weights) weights[std::to_string(delay)] = weight;
    out.emplace_back(ValueMap{{"policy", r.policy},
                              {"version", r.version},
                              {"open_step", r.open_step},
                              {"trainers", texts(r.trainers)},
                              {"missing", texts(r.missing)},
                              {"delays", std::move(delays)},
                              {"weights", std::move(weights)},
                              {"late", r.late},
                              {"aborted", r.aborted},
                              {"lost", r.lost}});
  }
  return out;
}

}  // namespace troupe::script
