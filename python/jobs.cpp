// Jobs in Python: loops that go on from their last checkpoint.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/base/error.h"
#include "core/codec/keep.h"
#include "python/cluster.h"
#include "script/data_sets.h"
#include "troupe/cluster/anew.h"
#include "troupe/job/job.h"
#include "troupe/launch/stop.h"
#include "troupe/launch/stop_request.h"

namespace troupe::python {
namespace {

using namespace nb::literals;

struct JobObject {
  ClusterPtr cluster;
  std::shared_ptr<Job> job;
};

// A loop over a job's steps, or over the batches of a data set.
struct LoopObject {
  JobObject job;
  std::shared_ptr<Job::Steps> steps;
  std::shared_ptr<Job::Batches> batches;
  std::optional<Job::Iterator> step, last_step;
  std::optional<Job::Batches::Iterator> batch, last_batch;
  bool begun = false;
  std::shared_ptr<internal::StopCatcher> catcher = nullptr;  // while it goes on, on its thread
};

// A dict that checkpoints have, by what it gives and takes as a value.
class DictKeep final : public Stateful {
 public:
  explicit DictKeep(nb::object dict) : dict_(std::move(dict)) {}
  StateDict state() const override {
    const nb::gil_scoped_acquire lock;
    StateDict out;
    internal::pack(out, kName, conversion_of(dict_.attr("copy")()));
    return out;
  }
  void load_state(const StateDict& state) override {
    const nb::gil_scoped_acquire lock;
    const nb::object now = conversion_of(internal::unpack(state, kName));
    dict_.attr("clear")();
    dict_.attr("update")(now);
  }
  std::string state_name() const override { return "keep"; }

 private:
  static constexpr const char* kName = "table";
  nb::object dict_;
};

JobObject make_job(const ClusterPtr& c, const std::string& name) {
  (void)c->session();
  JobObject out{c, nullptr};
  {
    const nb::gil_scoped_release free;
    out.job = std::make_shared<Job>(*c->cluster, name);
  }
  internal::before_checkpoints(*out.job, [] {  // what a script has dropped is no state
    const nb::gil_scoped_acquire lock;
    PyGC_Collect();
  });
  return out;
}

LoopObject steps_of(const JobObject& job, std::optional<int64_t> total) {
  if (total && *total < 0) throw_invalid("[job] steps(" + std::to_string(*total) + "): expected 0 or more");
  LoopObject loop{.job = job};
  loop.steps = std::make_shared<Job::Steps>(job.job->steps(total.value_or(Job::no_end)));
  return loop;
}

LoopObject batches_of(const JobObject& job, const script::NamedDataSet& set, int64_t epochs) {
  if (epochs < 0) throw_invalid("[job] " + std::to_string(epochs) + " epochs: expected 0 or more");
  LoopObject loop{.job = job};
  loop.batches = std::make_shared<Job::Batches>(job.job->batches(set.loader(), epochs));
  return loop;
}

// On to the next step; false: there is none.
template <class Loop, class Iterator>
bool advance(LoopObject& loop, const Loop& all, std::optional<Iterator>& at, std::optional<Iterator>& last) {
  const nb::gil_scoped_release free;
  if (!std::exchange(loop.begun, true)) {
    loop.catcher = std::make_shared<internal::StopCatcher>(false);
    at = all.begin(), last = all.end();
  } else if (at) {
    ++*at;
  }
  const bool more = at && *at != *last;
  if (!more) at.reset();
  return more;
}

// The error of ours that one of Python is, if it is one.
std::optional<Error> error_of(const nb::python_error& e) {
  const nb::object kind = nb::getattr(e.value(), "kind", nb::none());
  if (!nb::isinstance<nb::str>(kind)) return {};
  for (int k = 0; k < kErrorKindCount; ++k)
    if (nb::cast<std::string>(kind) == name(static_cast<ErrorKind>(k)))
      return Error(static_cast<ErrorKind>(k), nb::cast<std::string>(e.value().attr("message")),
                   nb::cast<std::vector<std::string>>(e.value().attr("trail")),
                   nb::cast<std::string>(e.value().attr("worker")));
  return {};
}

// An error of Python that says a worker was lost says so to the job, too; `all`: others of ours as well.
template <class F>
void call_step(const F& step, bool all = false) {
  const nb::gil_scoped_acquire lock;
  try {
    step();
  } catch (const nb::python_error& e) {
    const auto ours = error_of(e);
    if (!ours || (!all && ours->kind() != ErrorKind::disconnected)) throw;
    throw Error(*ours);
  }
}

void attempt(const JobObject& j, const nb::callable& step) {
  const nb::gil_scoped_release free;
  j.job->attempt([&] { call_step(step); });
}

// The driver's function, until it has come to its end; what it gave.
nb::object run_driver(const ClusterPtr& c, const nb::callable& driver, const nb::object& cluster) {
  (void)c->session();
  nb::object out = nb::none();
  const auto call = [&] { out = driver(cluster); };
  if (c->cluster->elastic_job().start == 0) return call(), out;
  const nb::gil_scoped_release free;
  internal::Anew(*c->cluster).run([&](Cluster& all) {
    if (!c->session_of) c->session_of = std::make_unique<script::Session>(all);
    try {
      call_step(call, true);
    } catch (const Error&) {  // Whatever the frames of the driver held goes.
      const nb::gil_scoped_acquire lock;
      PyGC_Collect();
      const nb::gil_scoped_release free_again;
      c->end_session();
      throw;
    }
  });
  return out;
}

nb::object next_of(LoopObject& loop) {
  if (loop.steps) {
    if (!advance(loop, *loop.steps, loop.step, loop.last_step)) throw nb::stop_iteration();
    return nb::cast(**loop.step);
  }
  if (!advance(loop, *loop.batches, loop.batch, loop.last_batch)) throw nb::stop_iteration();
  Job::Batch batch = **loop.batch;
  return nb::make_tuple(std::move(batch.x), std::move(batch.y), batch.epoch, batch.last);
}

}  // namespace

void open_jobs(nb::module_& m) {
  nb::class_<LoopObject>(m, "Loop").def("next", next_of).def("close", [](LoopObject& loop) {
    loop.step.reset();
    loop.batch.reset();
    loop.catcher.reset();
  });
  nb::class_<JobObject>(m, "Job")
      .def("steps", steps_of, "total"_a = nb::none())
      .def("batches", batches_of)
      .def("attempt", attempt)
      .def("check", [](const JobObject& j, double number) { j.job->check(number); })
      .def_prop_ro("resumed", [](const JobObject& j) { return j.job->resumed(); })
      .def_prop_ro("stopping", [](const JobObject& j) { return j.job->stopping(); });
  m.def("job", make_job);
  nb::class_<DictKeep>(m, "Keep").def(nb::init<nb::object>());
  m.def("run_driver", run_driver);
  m.def("take_signal", [](int signal) { return internal::take_signal(signal); });
}

}  // namespace troupe::python
