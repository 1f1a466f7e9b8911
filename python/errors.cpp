// Errors of C++ as Python's.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/base/error.h"
#include "python/conversion.h"
#include "script/session.h"
#include "troupe/checkpoint/rehearsal.h"
#include "troupe/launch/stop.h"

namespace troupe::python {
namespace {

nb::handle error_type;  // of the package, which lives as long as the interpreter

void raise(const Error& e) {
  nb::object exception = error_type(e.what());
  exception.attr("kind") = std::string(name(e.kind()));
  exception.attr("message") = e.message();
  exception.attr("trail") = e.trail();
  exception.attr("worker") = e.worker();
  PyErr_SetObject(error_type.ptr(), exception.ptr());
}

void exit_with(int code) {
  const nb::object number = nb::cast(code);
  PyErr_SetObject(PyExc_SystemExit, number.ptr());
}

}  // namespace

void open_errors(nb::module_& m) {
  m.def("set_error_type", [](nb::handle type) { error_type = type.inc_ref(); });
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      raise(e);
    } catch (const internal::StopEnd&) {  // of a job, whose last checkpoint is made
      exit_with(128 + internal::stop_asked());
    } catch (const internal::RehearsalEnd&) {
      exit_with(0);
    } catch (const script::Interrupted&) {
      if (!PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);  // else a handler of Python's has thrown
    }
  });
}

}  // namespace troupe::python
