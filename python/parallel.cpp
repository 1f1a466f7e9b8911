// Replicas, pipelines, parameter servers and groups in Python.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/base/error.h"
#include "python/pipeline_object.h"
#include "script/groups.h"
#include "script/modules.h"
#include "script/plans.h"
#include "script/replicas.h"

namespace troupe::python {
namespace {

using namespace nb::literals;

struct ReplicasObject {
  ClusterPtr cluster;
  std::shared_ptr<script::Replicas> net;
};
struct AccumulationObject {
  ReplicasObject replicas;
  std::shared_ptr<script::Step> step;  // of whose passes it is
  std::shared_ptr<parallel::Accumulation> open;
};
struct GroupObject {
  ClusterPtr cluster;
  Group group;
};

nb::list actors_of(const ClusterPtr& cluster, const std::vector<AnyRef>& actors) {
  nb::list out;
  for (const AnyRef& a : actors) out.append(ActorObject{cluster, a});
  return out;
}

// ---- replicas

ReplicasObject make_replicas(const ClusterPtr& c, nb::handle model, nb::kwargs options) {
  Value of = conversion_of(model);
  ValueMap given = values_of(options);
  const nb::gil_scoped_release free;
  return {c, script::Replicas::make(c->session(), std::move(of), std::move(given))};
}

nb::object joined(const ReplicasObject& r, bool mean, const std::string& method, nb::args args) {
  std::vector<script::Replicas::Argument> arguments;
  for (nb::handle h : args)
    if (const parallel::Split * s; nb::try_cast(h, s, false) && s)
      arguments.emplace_back(*s);
    else
      arguments.emplace_back(conversion_of(h));
  const auto step = current_step();
  Future<Value> future;
  {
    const nb::gil_scoped_release free;
    script::Session& session = r.cluster->session();
    const script::InStep in(step.get());
    const auto result =
        mean ? r.net->mean(session, method, arguments) : r.net->rows(session, method, arguments);
    future = result.then([](const Tensor& t) { return Value(t); });
  }
  return future_object(r.cluster, future, method + " of replicas");
}

void def_replicas(nb::module_& m) {
  nb::class_<parallel::Split>(m, "Split");
  m.def("split", [](nb::handle x) {
    if (PyList_Check(x.ptr()) || PyTuple_Check(x.ptr()))
      return parallel::split(tensors_of(x, "split([x0, x1])"));
    return parallel::split(tensor_of(x, "split(x)"));
  });
  nb::class_<AccumulationObject>(m, "Accumulation").def("close", [](AccumulationObject& a) {
    const nb::gil_scoped_release free;
    a.open.reset();
  });
  nb::class_<ReplicasObject>(m, "Replicas")
      .def("mean", [](const ReplicasObject& r, const std::string& method,
                      nb::args args) { return joined(r, true, method, args); })
      .def("rows", [](const ReplicasObject& r, const std::string& method,
                      nb::args args) { return joined(r, false, method, args); })
      .def("actors", [](const ReplicasObject& r) { return actors_of(r.cluster, r.net->actors()); })
      .def("accumulate",
           [](const ReplicasObject& r) {
             auto step = current_step();
             if (!step)
               throw_invalid(
                   "net.accumulate() is for the passes of a context: write it within `with "
                   "cluster.context():`");
             const script::InStep in(step.get());
             return AccumulationObject{r, step,
                                       std::make_shared<parallel::Accumulation>(r.net->accumulate())};
           })
      .def("state_dict",
           [](const ReplicasObject& r) {
             Value out;
             {
               const nb::gil_scoped_release free;
               out = script::state_value(r.cluster->session().get(r.net->state_dict()));
             }
             return conversion_of(std::move(out));
           })
      .def("load_state_dict",
           [](const ReplicasObject& r, nb::handle state) {
             const auto tensors = state_at(state, "net.load_state_dict(state)");
             const nb::gil_scoped_release free;
             r.cluster->session().get(r.net->load_state_dict(tensors));
           })
      .def("average",
           [](const ReplicasObject& r) {
             const nb::gil_scoped_release free;
             r.cluster->session().get(r.net->average());
           })
      .def("report", [](const ReplicasObject& r) {
        const nb::gil_scoped_release free;
        return r.cluster->session().get(r.net->report()).str();
      });
  m.def("replicas", make_replicas);
}

// ---- pipelines

ValueList stages_of(nb::handle stages) {
  Value value = conversion_of(stages);
  auto* list = value.get_if<ValueList>();
  if (!list) throw_invalid("[pipeline] the stages are a list, got " + value.describe());
  return std::move(*list);
}

PipelineObject make_pipeline(const ClusterPtr& c, nb::handle stages, nb::kwargs options) {
  ValueList list = stages_of(stages);
  ValueMap given = values_of(options);
  const nb::gil_scoped_release free;
  return {c, script::make_pipeline(c->session(), std::move(list), std::move(given)), nullptr};
}

nb::object measure(const ClusterPtr& c, nb::handle model, nb::handle sample, nb::kwargs options) {
  const Value of = conversion_of(model);
  const Tensor rows = tensor_of(sample, "cluster.measure(model, sample)");
  ValueMap given = values_of(options);
  Value found;
  {
    const nb::gil_scoped_release free;
    found = script::measure(c->session(), of, rows, std::move(given));
  }
  return conversion_of(std::move(found));
}
nb::object plan(nb::handle profile, nb::kwargs options) {
  const Value of = conversion_of(profile);
  ValueMap given = values_of(options);
  Value found;
  {
    const nb::gil_scoped_release free;
    found = script::plan(of, std::move(given));
  }
  return conversion_of(std::move(found));
}

PipelineObject make_pipelines(const MeshObject& mesh, nb::handle stages, nb::kwargs options) {
  ValueList list = stages_of(stages);
  ValueMap given = values_of(options);
  const nb::gil_scoped_release free;
  return {mesh.cluster, nullptr,
          script::make_pipelines(mesh.cluster->session(), mesh.mesh, std::move(list), std::move(given))};
}

Value step_value(const parallel::StepResult& result) {
  ValueList losses;
  for (const double l : result.losses) losses.emplace_back(l);
  return ValueMap{{"loss", result.loss}, {"losses", std::move(losses)}, {"weight", result.weight}};
}

nb::object pipeline_step(const PipelineObject& p, nb::handle x, nb::handle y,
                         std::optional<std::vector<double>> weights) {
  const auto step = current_step();
  if (!step)
    throw_invalid(
        "a step of a pipeline leaves its gradients in a context: write it within `with cluster.context():`");
  const Value input = conversion_of(x), target = conversion_of(y);
  Future<Value> done;
  {
    const nb::gil_scoped_release free;
    parallel::StepOptions options;
    if (weights) options.weights = *weights;
    const autograd::Context::Guard in(step->context());
    const auto result = p.one() ? p.one()->step_async(input, target, options)
                                : p.several()->pipelines.step_async(input, target, options);
    done = result.then(step_value);
    step->add_pass(done.then([](const Value&) {}));
  }
  return future_object(p.cluster, done, "step of a pipeline");
}

nb::object pipeline_forward(const PipelineObject& p, nb::handle x) {
  const Value input = conversion_of(x);
  std::vector<Value> outputs;
  {
    const nb::gil_scoped_release free;
    const NoGradGuard none;
    outputs = p.cluster->session().get(p.one() ? p.one()->forward_async(input)
                                               : p.several()->pipelines.forward_async(input));
  }
  return conversion_of(Value(ValueList(outputs.begin(), outputs.end())));
}

void def_pipelines(nb::module_& m) {
  nb::class_<PipelineObject>(m, "Pipeline")
      .def("step", pipeline_step, "x"_a, "y"_a, "weights"_a = nb::none())
      .def("forward", pipeline_forward)
      .def("actors",
           [](const PipelineObject& p) {
             return actors_of(p.cluster, p.several() ? p.several()->actors() : std::vector<AnyRef>());
           })
      .def("replace",
           [](const PipelineObject& p, const std::string& worker, const std::string& by) {
             const nb::gil_scoped_release free;
             p.several()->pipelines.replace(worker, by);
           })
      .def("shrink",
           [](const PipelineObject& p, int64_t replica) {
             if (replica < 0)
               throw_invalid("[pipelines] replica " + std::to_string(replica) + ": they count from 0");
             const nb::gil_scoped_release free;
             p.several()->pipelines.shrink(static_cast<size_t>(replica));
           })
      .def("report",
           [](const PipelineObject& p) {
             const nb::gil_scoped_release free;
             if (p.one()) return p.one()->step_report().str();
             return p.cluster->session().get(p.several()->pipelines.report()).str();
           })
      .def("report_values", [](const PipelineObject& p) {
        if (!p.one()) throw_invalid("report_values() is of one pipeline");
        return conversion_of(script::report_value(p.one()->step_report()));
      });
  m.def("pipeline", make_pipeline);
  m.def("pipelines", make_pipelines);
  m.def("measure", measure);
  m.def("plan", plan);
}

// ---- groups and meshes

Future<Value> as_value(const Future<Tensor>& f) {
  return f.then([](const Tensor& t) { return Codec<Tensor>::to(t); });
}
Future<Value> as_value(const Future<Tensors>& f) {
  return f.then([](const Tensors& ts) { return Codec<Tensors>::to(ts); });
}
Future<Value> as_value(const Future<void>& f) {
  return f.then([] { return Value(); });
}

Future<Value> operation(const Group& g, const std::string& name, const Value& x, int64_t peer,
                        const CollectiveOptions& options) {
  const auto one = [&] { return Codec<Tensor>::from(x); };
  const auto list = [&] { return Codec<Tensors>::from(x); };
  const bool several = x.get_if<ValueList>() != nullptr;
  if (name == "all_reduce")
    return several ? as_value(g.all_reduce(list(), options)) : as_value(g.all_reduce(one(), options));
  if (name == "reduce_scatter") return as_value(g.reduce_scatter(one(), options));
  if (name == "all_gather") return as_value(g.all_gather(one(), options));
  if (name == "all_to_all") return as_value(g.all_to_all(list(), options));
  if (name == "barrier") return as_value(g.barrier(options));
  if (name == "tune") return g.tune().then([](const std::string& text) { return Value(text); });
  const size_t rank = script::rank_in(g, peer);
  if (name == "reduce") return as_value(g.reduce(one(), rank, options));
  if (name == "broadcast")
    return several ? as_value(g.broadcast(list(), rank, options))
                   : as_value(g.broadcast(one(), rank, options));
  if (name == "scatter") return as_value(g.scatter(x.is_null() ? Tensor() : one(), rank, options));
  if (name == "gather") return as_value(g.gather(one(), rank, options));
  if (name == "send") return as_value(g.send(one(), rank, options.tag, options.timeout));
  if (name == "receive") return as_value(g.receive(rank, options.tag, options.timeout));
  throw_invalid("[group] no operation is called " + name);
}

nb::object run_operation(const GroupObject& g, const std::string& name, nb::handle x, int64_t peer,
                         nb::kwargs kwargs) {
  const Value value = conversion_of(x);
  const CollectiveOptions options = script::collective_options(values_of(kwargs));
  Future<Value> future;
  {
    const nb::gil_scoped_release free;
    const script::AsWorker here(g.cluster->session());
    future = operation(g.group, name, value, peer, options);
  }
  return future_object(g.cluster, future, name);
}

void def_groups(nb::module_& m) {
  nb::class_<GroupObject>(m, "Group")
      .def("run", run_operation, "name"_a, "x"_a.none(), "peer"_a, "options"_a)
      .def("rank",
           [](const GroupObject& g) {
             const script::AsWorker here(g.cluster->session());
             return g.group.rank();
           })
      .def("label",
           [](const GroupObject& g, int64_t rank) { return g.group.label(script::rank_in(g.group, rank)); })
      .def("subset",
           [](const GroupObject& g, const std::vector<int64_t>& ranks, const std::string& name) {
             std::vector<size_t> checked;
             for (const int64_t r : ranks) checked.push_back(script::rank_in(g.group, r));
             return GroupObject{g.cluster, g.group.subset(checked, name)};
           })
      .def("__len__", [](const GroupObject& g) { return g.group.size(); });
  m.def(
      "group",
      [](const ClusterPtr& c, nb::handle members, const std::string& name) {
        return GroupObject{c, script::group_of(c->session(), conversion_of(members), name)};
      },
      "cluster"_a, "members"_a.none(), "name"_a);
  nb::class_<MeshObject>(m, "Mesh")
      .def("size", [](const MeshObject& mesh, const std::string& dim) { return mesh.mesh.size(dim); })
      .def(
          "coordinates",
          [](const MeshObject& mesh, const std::string& dim, size_t turns) {
            std::vector<MeshDim> dims = mesh.mesh.dims();
            for (MeshDim& d : dims)
              if (d.name == dim) d.size *= turns;
            const MeshPoints points(std::move(dims));
            std::vector<size_t> out;
            for (size_t p = 0; p < points.size(); ++p) out.push_back(points.coordinate(p, dim));
            return out;
          },
          "dim"_a, "turns"_a = 1,
          "Where each point is in a dimension, in the order of the points; turns: so many of each worker.")
      .def("coordinate",
           [](const MeshObject& mesh, const std::string& dim) {
             const script::AsWorker here(mesh.cluster->session());
             return mesh.mesh.coordinate(dim);
           })
      .def("group",
           [](const MeshObject& mesh, const std::string& dim) {
             const script::AsWorker here(mesh.cluster->session());
             return GroupObject{mesh.cluster, mesh.mesh[dim]};
           })
      .def("__len__", [](const MeshObject& mesh) { return mesh.mesh.all().size(); });
  m.def(
      "mesh",
      [](const ClusterPtr& c, const std::vector<std::pair<std::string, int64_t>>& dims, nb::handle members,
         const std::string& name) {
        return MeshObject{c, script::mesh_of(c->session(), dims, conversion_of(members), name)};
      },
      "cluster"_a, "dims"_a, "members"_a.none(), "name"_a);
}

}  // namespace

void open_parallel(nb::module_& m) {
  def_replicas(m);
  def_pipelines(m);
  def_groups(m);
}

}  // namespace troupe::python
