// Optimizers, schedules and data sets in Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/base/error.h"
#include "optim/optimizer_catalog.h"
#include "optim/schedule.h"
#include "python/cluster.h"
#include "script/data_sets.h"
#include "script/optimizers.h"

namespace troupe::python {
namespace {

using namespace nb::literals;

struct OptimizerObject {
  ClusterPtr cluster;  // of its actors; null: of tensors here
  std::shared_ptr<script::NamedOptimizer> optimizer;
};
struct ScheduleObject {
  optim::Schedule schedule;
};
struct SchedulerObject {
  OptimizerObject optimizer;  // outlives the scheduler
  std::shared_ptr<optim::Scheduler> scheduler;
};

// The cluster of the first actor among these.
ClusterPtr cluster_in(nb::handle what) {
  if (nb::isinstance<ActorObject>(what)) return nb::cast<const ActorObject&>(what).cluster;
  if (PyList_Check(what.ptr()) || PyTuple_Check(what.ptr()))
    for (nb::handle one : what)
      if (ClusterPtr found = cluster_in(one)) return found;
  return nullptr;
}

OptimizerObject make_optimizer(const std::string& name, nb::handle what, nb::handle options) {
  OptimizerObject out{cluster_in(what), nullptr};
  Value of = conversion_of(what), given = conversion_of(options);
  const nb::gil_scoped_release free;
  out.optimizer = std::make_shared<script::NamedOptimizer>(
      script::NamedOptimizer::make(name, std::move(of), std::move(*given.get_if<ValueMap>())));
  return out;
}

// Makes one of tensors here, in groups of options of their own.
OptimizerObject make_grouped(const std::string& name, nb::handle groups) {
  std::vector<optim::OptionGroup> all;
  for (nb::handle pair : groups) {
    Value options = conversion_of(pair[1]);
    all.push_back({std::move(*options.get_if<ValueMap>()), tensors_of(pair[0], "optim." + name)});
  }
  return {nullptr,
          std::make_shared<script::NamedOptimizer>(script::NamedOptimizer::make(name, std::move(all)))};
}

void step(const OptimizerObject& o) {
  if (!o.cluster) {
    const nb::gil_scoped_release free;
    o.optimizer->local()->step();
    return;
  }
  script::Session& session = o.cluster->session();
  const auto current = step_with_gradients(session);
  const nb::gil_scoped_release free;
  o.optimizer->step(session, current.get(), "write opt.step() within `with cluster.context() as step:`");
}

// Several optimizers, and the step whose gradients they have, if one of them is of a cluster.
struct Several {
  explicit Several(const std::vector<OptimizerObject>& optimizers) {
    for (const OptimizerObject& o : optimizers) {
      all.push_back(o.optimizer.get());
      if (o.cluster) current = step_with_gradients(o.cluster->session());
    }
  }
  std::vector<const script::NamedOptimizer*> all;
  std::shared_ptr<script::Step> current;
};

double clip(const std::vector<OptimizerObject>& optimizers, double most) {
  const Several several(optimizers);
  const nb::gil_scoped_release free;
  return script::clip_grad_norm(several.all, most, several.current.get(), "clip_grad_norm");
}

void step_all(const std::vector<OptimizerObject>& optimizers) {
  const Several several(optimizers);
  const nb::gil_scoped_release free;
  script::step_all(several.all, several.current.get(),
                   "write step_all([a, b]) within `with cluster.context() as step:`");
}

void def_optimizer(nb::module_& m) {
  nb::class_<OptimizerObject>(m, "Optimizer")
      .def("step", step)
      .def("zero_grad", [](OptimizerObject& o) { o.optimizer->zero_grad(); })
      .def("options",
           [](OptimizerObject& o, size_t group) {
             return conversion_of(Value(o.optimizer->tunable().options_map(group)));
           })
      .def("change_options",
           [](OptimizerObject& o, size_t group, nb::handle changes) {
             const Value changed = conversion_of(changes);
             const nb::gil_scoped_release free;
             o.optimizer->tunable().change_options(group, *changed.get_if<ValueMap>());
           })
      .def("group_count", [](OptimizerObject& o) { return o.optimizer->tunable().group_count(); })
      .def("group_names",
           [](OptimizerObject& o) {
             if (!o.cluster) throw_invalid("opt.group_names() is of the optimizer of actors");
             const nb::gil_scoped_release free;
             return o.optimizer->distributed()->parameters_by_group();
           })
      .def("save",
           [](OptimizerObject& o, const std::string& path) {
             const nb::gil_scoped_release free;
             o.optimizer->save(path);
           })
      .def("load",
           [](OptimizerObject& o, const std::string& path) {
             const nb::gil_scoped_release free;
             o.optimizer->load(path);
           })
      .def("state",
           [](OptimizerObject& o) {
             if (o.cluster)
               throw_invalid("an optimizer of actors has its state beside them: opt.save(folder)");
             ValueMap out;
             for (const auto& [name, tensor] : o.optimizer->local()->state()) out[name] = tensor;
             return conversion_of(Value(std::move(out)));
           })
      .def("load_state",
           [](OptimizerObject& o, nb::handle state) {
             if (o.cluster)
               throw_invalid("an optimizer of actors has its state beside them: opt.load(folder)");
             StateDict tensors;
             const Value value = conversion_of(state);
             for (const auto& [name, v] : *value.get_if<ValueMap>())
               if (const auto* t = v.get_if<Tensor>()) tensors[name] = *t;
             o.optimizer->local()->load_state(tensors);
           })
      .def("__repr__", [](OptimizerObject& o) { return o.optimizer->str(); });
  m.def("optimizer", make_optimizer);
  m.def("optimizer_of_groups", make_grouped);
  m.def("clip_grad_norm", clip);
  m.def("step_all", step_all);
}

void def_schedules(nb::module_& m) {
  nb::class_<ScheduleObject>(m, "Schedule")
      .def("__call__",
           [](const ScheduleObject& s, double rate, int64_t step) { return s.schedule(rate, step); });
  m.def("schedule", [](const std::string& name, nb::args args, nb::kwargs kwargs) {
    for (const auto& s : optim::schedules())
      if (s.name == name) return ScheduleObject{s(values_of(args), values_of(kwargs))};
    throw_invalid("[optim] there is no schedule " + name);
  });
  nb::class_<SchedulerObject>(m, "Scheduler").def("step", [](SchedulerObject& s) { s.scheduler->step(); });
  m.def("scheduler", [](const OptimizerObject& o, const ScheduleObject& s, const std::string& option) {
    SchedulerObject out{o, nullptr};
    out.scheduler =
        std::make_shared<optim::Scheduler>(out.optimizer.optimizer->tunable(), s.schedule, option);
    return out;
  });
}

struct EpochObject {
  datasets::Epoch epoch;
  int64_t next = 0;
};

void def_data(nb::module_& m) {
  using Set = script::NamedDataSet;
  nb::class_<EpochObject>(m, "Batches")
      .def("__iter__", [](nb::object self) { return self; })
      .def("__len__", [](const EpochObject& e) { return e.epoch.batches(); })
      .def("__next__", [](EpochObject& e) {
        if (e.next >= e.epoch.batches()) throw nb::stop_iteration();
        datasets::Batch batch;
        {
          const nb::gil_scoped_release free;
          batch = e.epoch.batch(e.next++);
        }
        return nb::make_tuple(std::move(batch.x), std::move(batch.y));
      });
  nb::class_<Set>(m, "DataSet", "Samples x and labels y, and how they come in batches.")
      .def_prop_ro("x", [](const Set& s) { return s.set.x; })
      .def_prop_ro("y", [](const Set& s) { return s.set.y; })
      .def_prop_ro("batch_size", [](const Set& s) { return s.options.batch_size; })
      .def("__len__", [](const Set& s) { return s.set.size(); })
      .def("epoch_batches", [](const Set& s) { return s.loader().batches(); })
      .def(
          "batches",
          [](Set& s, nb::handle epoch) {
            const int64_t number = epoch.is_none() ? s.epoch++ : nb::cast<int64_t>(epoch);
            return EpochObject{s.loader().epoch(number)};
          },
          "epoch"_a = nb::none(), "One pass over the set; each has an order of its own.")
      .def(
          "rows",
          [](const Set& s, int64_t from, int64_t count) {
            Set out = s;
            out.set = datasets::rows(s.set, from, count);
            return out;
          },
          "first"_a, "count"_a, "A part of it.")
      .def("__repr__", [](const Set& s) { return "<" + s.str() + ">"; });
  m.def("data_set", [](const std::string& name, nb::args args, nb::kwargs kwargs) {
    ValueList positional = values_of(args);
    ValueMap named = values_of(kwargs);
    const nb::gil_scoped_release free;
    return script::data_set_of(name, std::move(positional), std::move(named));
  });
  m.def("data_of", [](const Tensor& x, const Tensor& y, nb::kwargs options) {
    return script::data_set_of(x, y, values_of(options));
  });
}

}  // namespace

void open_optimizers(nb::module_& m) {
  def_optimizer(m);
  def_schedules(m);
  def_data(m);
}

}  // namespace troupe::python
