// Values between C++ and Python.
#pragma once
#include <nanobind/nanobind.h>

#include <map>
#include <string>
#include <string_view>

#include "core/value/value.h"

namespace troupe::python {

namespace nb = nanobind;

/// What a Python object is as a value that can travel: numbers, text, tensors and arrays (NumPy's, and
/// whatever DLPack or the buffer protocol knows), references, results of futures, specifications of modules,
/// and lists and dicts of these. Waits for futures. Names what cannot travel.
Value conversion_of(nb::handle object);
nb::object conversion_of(Value value);

ValueList values_of(const nb::args& args);
ValueMap values_of(const nb::kwargs& kwargs);
/// A tensor, or a list of them; none of None. `what` wants them, for errors.
Tensors tensors_of(nb::handle object, std::string_view what);
/// A tensor; a number becomes one of no dimensions.
Tensor tensor_of(nb::handle object, std::string_view what);

/// Tensors by name from a dict; `call` wants them, for errors.
std::map<std::string, Tensor> state_at(nb::handle state, const char* call);

/// The value of an actor, or of a future, which is waited for; false: the object is neither.
bool value_of_remote(nb::handle object, Value& out);
/// A reference that came in a message, to an actor of the cluster that was made last.
nb::object actor_object(Value reference);

/// A tensor of an object that has DLPack or the buffer protocol, without a copy; what may not be written is
/// copied. The object goes when nobody has its elements any more.
Tensor tensor_of_array(nb::handle array);
/// The elements for another library, which shares them: messages copy them from now on.
nb::object array_of(const Tensor& tensor, bool numpy);

/// The one object for a dtype: `x.dtype is troupe.float32`.
nb::object dtype_object(DType dtype);

// ---- what each file adds to the module
void open_errors(nb::module_& m);      ///< Error, and what C++ throws as such
void open_values(nb::module_& m);      ///< dtype, device
void open_tensors(nb::module_& m);     ///< Tensor, operators by name
void open_modules(nb::module_& m);     ///< modules, safetensors
void open_cluster(nb::module_& m);     ///< clusters, actors, futures, steps
void open_optimizers(nb::module_& m);  ///< optimizers, schedules, data sets
void open_parallel(nb::module_& m);    ///< replicas, pipelines, groups, meshes
void open_servers(nb::module_& m);     ///< parameter servers and their clients
void open_jobs(nb::module_& m);        ///< loops that go on from checkpoints
void open_pools(nb::module_& m);       ///< pools of actors
void open_language_models(nb::module_& m);
void open_libraries(nb::module_& m);  ///< libraries of actors
void open_drawing(nb::module_& m);    ///< charts
void open_feeds(nb::module_& m);      ///< sources larger than memory, and feeds

}  // namespace troupe::python
