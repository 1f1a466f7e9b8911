// Cluster, actors, futures and steps in Python. Waits let go of the interpreter's lock, and look for Ctrl-C.
#include "python/cluster.h"

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "autograd/distributed/optim/module_actor.h"
#include "core/base/error.h"
#include "script/modules.h"
#include "troupe/cluster/launch.h"

namespace troupe::python {

ClusterObject::~ClusterObject() {
  if (!cluster) return;
  const nb::gil_scoped_release free;  // its threads may be in hooks of Python's
  end_session();
  cluster.reset();
}

void ClusterObject::end_session() {
  for (const auto& end : std::exchange(at_end, {})) end();
  session_of.reset();
}

script::Session& ClusterObject::session() const {
  if (!session_of) throw_invalid("[cluster] it has been shut down");
  return *session_of;
}

namespace {

using namespace nb::literals;
using script::Session;

std::weak_ptr<ClusterObject> last_cluster;  // that was made
nb::handle step_variable;  // contextvars.ContextVar of the current StepObject, as long as the interpreter

// Whether a signal has come whose handler in Python has thrown; on the interpreter's main thread alone.
bool looks() {
  const nb::gil_scoped_acquire lock;
  return PyErr_CheckSignals() != 0;
}

Duration seconds(double s) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s)); }

// ---- making one

std::unique_ptr<Cluster> with_processes(ClusterObject& c, int64_t processes, const std::string& python,
                                        const ClusterOptions& options) {
  const tools::SignalMask none(SIG_BLOCK);
  std::vector<std::string> words = {"-m", "troupe.worker", options.checkpoints.dir};
  for (const std::string& library : loaded_libraries()) words.push_back(library);
  tools::StartedWorkers started = tools::start_workers(processes, python, words);
  c.processes = std::move(started.processes);
  const tools::JoinWatch watch(c.processes);
  try {
    return Cluster::coordinate(started.environment, loaded_types(), options, watch.stop());
  } catch (const Error&) {
    if (watch.interrupted()) throw script::Interrupted();
    throw;
  }
}

// Where its jobs keep checkpoints, and how: (folder, resume, every, keep).
Checkpoints checkpoints_of(const std::tuple<std::string, bool, int64_t, int64_t>& given) {
  const auto& [dir, resume, every, keep] = given;
  return {.dir = dir, .resume = resume, .every = every, .keep = keep};
}

ClusterPtr make_cluster(int64_t workers, int64_t processes, const std::string& python, double timeout,
                        const std::tuple<std::string, bool, int64_t, int64_t>& checkpoints) {
  auto out = std::make_shared<ClusterObject>();
  const nb::gil_scoped_release free;
  ClusterOptions options;
  options.timeout = seconds(timeout);
  options.checkpoints = checkpoints_of(checkpoints);
  const auto launched = LaunchEnvironment::read();
  if (launched && launched->world > 1) {
    out->launcher.emplace(internal::net::kDriverWords);
    out->cluster = Cluster::coordinate(*launched, loaded_types(), options);
    out->launcher->complete();
  } else if (processes > 1) {
    out->cluster = with_processes(*out, processes, python, options);
  } else {
    out->cluster = Cluster::in_process(static_cast<int>(workers ? workers : LaunchEnvironment::workers()),
                                       loaded_types(), options);
  }
  out->session_of = std::make_unique<Session>(*out->cluster);
  last_cluster = out;
  return out;
}

// The rank that a launcher gave this process, and of how many.
std::optional<std::pair<uint32_t, uint32_t>> launched_as() {
  const auto e = LaunchEnvironment::read();
  if (!e) return {};
  return std::pair{e->rank, e->world};
}

void shut_down(ClusterObject& c, double timeout) {
  if (!c.cluster) return;
  const nb::gil_scoped_release free;
  c.end_session();
  internal::net::say_done();
  const auto cluster = std::move(c.cluster);
  cluster->shutdown({.timeout = seconds(timeout)});
}

// At once; for an interpreter that ends, and for errors.
void end(ClusterObject& c, bool failed) {
  if (!c.cluster) return;
  const nb::gil_scoped_release free;
  failed ? internal::net::say_failed() : internal::net::say_done();  // before others end with it
  c.end_session();
  c.cluster.reset();
  c.processes.end();
}

// ---- actors and calls

Place place_of(nb::handle where) {
  if (PyLong_Check(where.ptr())) return Place(nb::cast<int64_t>(where));
  if (!PyUnicode_Check(where.ptr()))
    throw_invalid("[spawn] a worker is its name, \"w1\", or its number; got a " +
                  std::string(Py_TYPE(where.ptr())->tp_name));
  return Place(nb::cast<std::string>(where));
}

ActorObject spawn(const ClusterPtr& c, const std::string& type, nb::handle where, nb::args args,
                  nb::kwargs kwargs) {
  Session& session = c->session();
  const Place place = place_of(where);
  ValueList positional = values_of(args);
  ValueMap named = values_of(kwargs);
  const nb::gil_scoped_release free;
  return {c, session.spawn(type, place, std::move(positional), std::move(named))};
}

// Outside a context no gradients are recorded: who would lose some is told so.
void refuse_lost_gradients(const std::vector<script::CallArgument>& arguments, const ValueMap& named,
                           const std::string& method) {
  if (!grad_enabled()) return;
  const auto check = [&](Value value) {
    visit_tensors(value, [&](const Tensor& t) {
      if (t.defined() && t.requires_grad())
        throw_invalid(
            "[call] an argument of " + method +
            " needs a gradient, and outside a context none is recorded: write the call within `with "
            "cluster.context() as step:`, or `with troupe.no_grad():`");
    });
  };
  for (const script::CallArgument& a : arguments) check(a.value);
  for (const auto& [name, value] : named) check(value);
}

// Futures among the arguments are copied while the interpreter's lock is held, as other threads may use them.
FutureObject call(const ActorObject& a, const std::string& method, nb::args args, nb::kwargs kwargs) {
  Session& session = a.cluster->session();
  std::vector<std::pair<FutureObject*, script::Answer>> futures;
  futures.reserve(args.size());
  std::vector<script::CallArgument> arguments;
  for (nb::handle h : args) {
    FutureObject* f = nullptr;
    if (nb::try_cast(h, f, false) && f && f->cluster == a.cluster)
      arguments.push_back({.answer = &futures.emplace_back(f, f->answer).second});
    else
      arguments.push_back({conversion_of(h)});
  }
  ValueMap named = values_of(kwargs);
  auto step = current_step();
  if (!step) refuse_lost_gradients(arguments, named, method);
  script::Answer answer = [&] {
    const nb::gil_scoped_release free;
    return script::call(session, a.ref, method, std::move(arguments), std::move(named), std::move(step));
  }();
  for (auto& [future, used] : futures) future->answer = std::move(used);
  return {a.cluster, std::move(answer)};
}

std::vector<std::string> methods(const ActorObject& a) {
  std::vector<std::string> out;
  const nb::gil_scoped_release free;
  for (const Entry& e : a.cluster->session().methods(a.ref)) out.push_back(e.name);
  return out;
}

// The method of that name, described; none: the nearest ones are named.
std::string method_text(const ActorObject& a, const std::string& name) {
  const nb::gil_scoped_release free;
  const std::vector<Entry> all = a.cluster->session().methods(a.ref);
  const Entry& found = find_entry(all, name, "[call] " + a.ref.type() + " has no method");
  return found.signature() + "\n\n" + found.text;
}

void wait_until(const Future<Value>& future, double timeout, const std::string& what) {
  const TimePoint until = Clock::system().now() + seconds(timeout);
  while (!future.wait_for(std::chrono::milliseconds(20))) {
    Session::look();
    if (Clock::system().now() >= until)
      throw_error(ErrorKind::deadline, fmt::format("{} did not come within {} s; it goes on", what, timeout));
  }
}

nb::object wait_value(FutureObject& f, std::optional<double> timeout) {
  Session& session = f.cluster->session();
  f.answer.look(session);
  script::Answer answer = f.answer;  // other threads may wait for it, too
  Value value;
  {
    const nb::gil_scoped_release free;
    if (timeout) wait_until(answer.future, *timeout, answer.what);
    value = answer.wait(session);
  }
  f.answer.step.reset();
  return conversion_of(std::move(value));
}

nb::dict state_of(const std::map<std::string, Tensor>& state) {
  nb::dict out;
  for (const auto& [name, tensor] : state) out[name.c_str()] = tensor;
  return out;
}

void def_actor(nb::module_& m) {
  nb::class_<ActorObject>(m, "Actor", "A reference to an actor: call it, or its methods.")
      .def("call", call)
      .def("methods", methods)
      .def("method_text", method_text)
      .def_prop_ro("worker", [](const ActorObject& a) { return a.ref.owner_name(); })
      .def_prop_ro("type", [](const ActorObject& a) { return a.ref.type(); })
      .def_prop_ro("cluster", [](const ActorObject& a) { return a.cluster; })
      .def(
          "state_dict",
          [](const ActorObject& a) {
            std::map<std::string, Tensor> state;
            {
              const nb::gil_scoped_release free;
              state = a.cluster->session().get(nn::remote_state_dict(a.ref));
            }
            return state_of(state);
          },
          "Copies of its parameters and buffers, by name.")
      .def("load_state_dict",
           [](const ActorObject& a, nb::handle state) {
             auto tensors = state_at(state, "a.load_state_dict(state)");
             const nb::gil_scoped_release free;
             a.cluster->session().get(nn::load_remote_state_dict(a.ref, std::move(tensors)));
           })
      .def(
          "train",
          [](const ActorObject& a, bool on) {
            const nb::gil_scoped_release free;
            a.cluster->session().get(nn::set_remote_training(a.ref, on));
          },
          "mode"_a = true)
      .def("set_name",
           [](const ActorObject& a, const std::string& name) {
             const nb::gil_scoped_release free;
             a.cluster->session().get(a.cluster->cluster->set_name(a.ref, name));
           })
      .def("__eq__", [](const ActorObject& a, const ActorObject& b) { return a.ref == b.ref; })
      .def("__hash__", [](const ActorObject& a) { return a.ref.hash(); })
      .def("__repr__", [](const ActorObject& a) { return "<" + a.ref.str() + ">"; });
}

void def_future(nb::module_& m) {
  nb::class_<FutureObject>(m, "Future", "The answer of a call, on its way.")
      .def("result", wait_value, "timeout"_a = nb::none(),
           "The value, once it is there, or its error. After Ctrl-C it can be waited for again.")
      .def("done", [](const FutureObject& f) { return f.answer.future.is_ready(); })
      .def(
          "cancel", [](FutureObject& f) { f.answer.cancel(f.cluster->session()); },
          "Nobody wants the value: the call ends at its callee.")
      .def("wake",
           [](FutureObject& f, int fd) {  // of asyncio: a thread of Troupe writes there, and takes no lock
             f.answer.look(f.cluster->session());
             f.answer.future.on_ready([fd](const Result<Value>&) {
               const uint64_t one = 1;
               static_cast<void>(!write(fd, &one, sizeof one));
             });
           })
      .def("__repr__", [](const FutureObject& f) { return "<" + f.answer.str() + ">"; });
  m.def("eventfd", [] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
}

// ---- steps

autograd::BackwardOptions pass_options(bool retain_graph, bool create_graph) {
  return {.retain_graph = retain_graph, .create_graph = create_graph};
}

void backward(const StepObject& s, nb::handle roots, nb::handle weights, bool retain_graph,
              bool create_graph) {
  const Tensors r = tensors_of(roots, "step.backward(loss)"),
                w = tensors_of(weights, "step.backward(gradient)");
  const nb::gil_scoped_release free;
  Session& session = s.cluster->session();
  const autograd::Context::Guard in(s.step->context());
  session.get_pass(*s.step, s.step->context().backward_async(r, w, pass_options(retain_graph, create_graph)));
}

nb::object gradient(const StepObject& s, nb::handle outputs, nb::handle inputs, nb::handle weights,
                    bool retain_graph, bool create_graph) {
  Tensors found;
  if (inputs.is_none()) {
    const Tensor leaf = tensor_of(outputs, "step.grad(leaf)");
    const nb::gil_scoped_release free;
    for (const auto& pass : s.step->take_passes()) s.cluster->session().get(pass);
    found = {s.step->context().grad(leaf)};
  } else {
    const Tensors of = tensors_of(outputs, "step.grad(outputs)"),
                  to = tensors_of(inputs, "step.grad(inputs)"),
                  by = tensors_of(weights, "step.grad(weights)");
    const nb::gil_scoped_release free;
    const autograd::Context::Guard in(s.step->context());
    found = s.cluster->session().get_pass(
        *s.step, s.step->context().grad_async(of, to, by, pass_options(retain_graph, create_graph)));
  }
  if (inputs.is_none() || nb::isinstance<Tensor>(inputs)) return conversion_of(Value(found.at(0)));
  return nb::tuple(conversion_of(Value(ValueList(found.begin(), found.end()))));
}

void def_step(nb::module_& m) {
  nb::class_<StepObject>(m, "Step", "The calls and gradients of one training step.")
      .def("backward", backward, "loss"_a, "gradient"_a = nb::none(), "retain_graph"_a = false,
           "create_graph"_a = false, "Runs back through all calls of the step, on all workers.")
      .def("grad", gradient, "outputs"_a, "inputs"_a = nb::none(), "weights"_a = nb::none(),
           "retain_graph"_a = false, "create_graph"_a = false,
           "grad(leaf): what backward() left for it; grad(outputs, inputs): gradients of any inputs.")
      .def("close",
           [](StepObject& s) {
             const nb::gil_scoped_release free;
             s.step->close();
           })
      .def_prop_ro("open", [](const StepObject& s) { return s.step->open(); });
  m.def("set_step_variable", [](nb::handle variable) { step_variable = variable.inc_ref(); });
}

void def_cluster(nb::module_& m) {
  nb::class_<ClusterObject>(m, "Cluster")
      .def_prop_ro(
          "workers", [](ClusterObject& c) { return c.session().cluster().workers(); },
          "The names of its workers; this process is the first one.")
      .def(
          "types",
          [](ClusterObject& c, const std::string& worker) {
            std::vector<std::string> out;
            const nb::gil_scoped_release free;
            Session& s = c.session();
            for (const auto& t : s.types(Place(worker).in(s.worker().members()))) out.push_back(t.name);
            return out;
          },
          "worker"_a = "w0", "The actor types that a worker can host.")
      .def("new_step",
           [](const ClusterPtr& c) {
             return StepObject{c, std::make_shared<script::Step>(c->session().worker())};
           })
      .def(
          "metrics",
          [](ClusterObject& c, const std::string& worker) {
            const nb::gil_scoped_release free;
            return c.session().cluster().metrics(worker);
          },
          "Counters of a worker.")
      .def(
          "failures",
          [](ClusterObject& c) {
            std::vector<std::string> out;
            for (const auto& f : c.session().unseen_failures()) out.push_back(f.text);
            return out;
          },
          "Errors of calls that nobody waited for.")
      .def_prop_ro("is_open", [](const ClusterObject& c) { return c.cluster != nullptr; })
      .def("shutdown", shut_down, "timeout"_a = 60.0)
      .def("end", end, "failed"_a = false);
  m.def("spawn", spawn);
  m.def("make_cluster", make_cluster);
  m.def("lookup", [](const ClusterPtr& c, const std::string& name) {
    const nb::gil_scoped_release free;
    return ActorObject{c, c->session().get(c->cluster->here().lookup_any(name))};
  });
  m.def("launched_as", launched_as);
  m.def("serve", [](const std::string& checkpoints) {  // of a process of another rank: to the end
    const nb::gil_scoped_release free;
    return launch(loaded_types(), [](Cluster&) {}, {.checkpoints = {.dir = checkpoints}});
  });
}

}  // namespace

bool value_of_remote(nb::handle object, Value& out) {
  if (const ActorObject * a; nb::try_cast(object, a, false) && a) {
    out = Codec<AnyRef>::to(a->ref);
    return true;
  }
  FutureObject* f = nullptr;
  if (!nb::try_cast(object, f, false) || !f) return false;
  f->answer.look(f->cluster->session());
  script::Answer answer = f->answer;
  const nb::gil_scoped_release free;
  out = answer.get(f->cluster->session());
  return true;
}

nb::object actor_object(Value reference) {
  ClusterPtr cluster = last_cluster.lock();
  if (!cluster) throw_invalid("[cluster] it has been shut down");
  return nb::cast(ActorObject{std::move(cluster), Codec<AnyRef>::from(std::move(reference))});
}

std::shared_ptr<script::Step> current_step() {
  PyObject* found = nullptr;
  if (PyContextVar_Get(step_variable.ptr(), nullptr, &found) != 0) throw nb::python_error();
  const nb::object step = nb::steal(found);
  if (!step.is_valid() || step.is_none()) return nullptr;
  auto current = nb::cast<const StepObject&>(step).step;
  return current->open() ? current : nullptr;
}

std::shared_ptr<script::Step> step_with_gradients(Session& session) {
  auto step = current_step();
  const nb::gil_scoped_release free;
  if (step)
    for (const auto& pass : step->take_passes()) session.get(pass);
  return step;
}

nb::object future_object(const ClusterPtr& cluster, const Future<Value>& future, const std::string& what) {
  return nb::cast(FutureObject{cluster, script::answer_of(cluster->session(), future, what)});
}

void open_cluster(nb::module_& m) {
  Session::look_by(looks);
  def_cluster(m);
  def_actor(m);
  def_future(m);
  def_step(m);
}

}  // namespace troupe::python
