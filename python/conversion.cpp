#include "python/conversion.h"

#include <nanobind/stl/string.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"

namespace troupe::python {
namespace {

constexpr int kDeepest = 64;  // lists within lists

struct DTypeObject {
  DType dtype;
};

// The objects of the dtypes live as long as the interpreter.
nb::handle dtype_objects[kDTypeCount];

Value any_of(nb::handle h, int depth);

ValueList list_of(nb::handle h, int depth) {
  ValueList list;
  for (nb::handle element : h) list.push_back(any_of(element, depth + 1));
  return list;
}

ValueMap map_of(nb::handle h, int depth) {
  ValueMap map;
  for (auto [key, element] : nb::borrow<nb::dict>(h)) {
    if (!PyUnicode_Check(key.ptr()))
      throw_invalid("the keys of a dict that travels are text, got " + nb::cast<std::string>(nb::repr(key)));
    map[nb::cast<std::string>(key)] = any_of(element, depth + 1);
  }
  return map;
}

Value whole_of(PyObject* p) {
  int over = 0;
  const long long n = PyLong_AsLongLongAndOverflow(p, &over);
  if (over) throw_invalid("an integer beyond 64 bits cannot travel");
  return int64_t{n};
}

// The numbers that Python itself has; NumPy's scalars come with numbers_of().
bool plain_of(PyObject* p, Value& out) {
  if (p == Py_None) return true;
  if (PyBool_Check(p)) return out = Value(p == Py_True), true;
  if (PyLong_Check(p)) return out = whole_of(p), true;
  if (PyFloat_Check(p)) return out = Value(PyFloat_AS_DOUBLE(p)), true;
  if (PyUnicode_Check(p)) return out = Value(nb::cast<std::string>(nb::handle(p))), true;
  if (PyBytes_Check(p)) {
    const auto* data = reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(p));
    return out = Value(Bytes(data, data + PyBytes_GET_SIZE(p))), true;
  }
  return false;
}

// NumPy's scalars, and whatever else counts as a number.
bool number_of(PyObject* p, Value& out) {
  const std::string_view type = Py_TYPE(p)->tp_name;
  if (type.starts_with("numpy.bool")) return out = Value(PyObject_IsTrue(p) == 1), true;
  if (PyIndex_Check(p)) {
    const nb::object index = nb::steal(PyNumber_Index(p));
    if (!index.is_valid()) throw nb::python_error();
    return out = whole_of(index.ptr()), true;
  }
  if (!Py_TYPE(p)->tp_as_number || !Py_TYPE(p)->tp_as_number->nb_float) return false;
  const double number = PyFloat_AsDouble(p);
  if (PyErr_Occurred()) throw nb::python_error();
  return out = Value(number), true;
}

Value any_of(nb::handle h, int depth) {
  if (depth > kDeepest)
    throw_invalid("a list within itself, or nested more than " + std::to_string(kDeepest) +
                  " deep, cannot travel");
  PyObject* p = h.ptr();
  Value out;
  if (plain_of(p, out)) return out;
  if (const Tensor * t; nb::try_cast(h, t, false) && t) return *t;
  if (PyList_Check(p) || PyTuple_Check(p)) return list_of(h, depth);
  if (PyDict_Check(p)) return map_of(h, depth);
  if (const DTypeObject * t; nb::try_cast(h, t, false) && t) return std::string(name(t->dtype));
  if (const Device * d; nb::try_cast(h, d, false) && d) return d->str();
  if (value_of_remote(h, out)) return out;
  if (PyObject_HasAttrString(p, "_troupe_spec")) return any_of(h.attr("_troupe_spec")(), depth + 1);
  if (PyObject_HasAttrString(p, "__dlpack__")) return tensor_of_array(h);
  if (number_of(p, out)) return out;
  if (PyObject_CheckBuffer(p)) return tensor_of_array(h);
  throw_invalid(
      std::string("a ") + Py_TYPE(p)->tp_name +
      " cannot travel; what can: None, bool, int, float, str, tensors and arrays, references, modules "
      "of troupe.nn, lists and dicts of these");
}

}  // namespace

Value conversion_of(nb::handle object) { return any_of(object, 0); }

nb::object conversion_of(Value value) {
  return std::visit(
      []<class T>(T& x) -> nb::object {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<T, Bytes>) {
          return nb::bytes(reinterpret_cast<const char*>(x.data()), x.size());
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return x.defined() ? nb::cast(std::move(x)) : nb::none();
        } else if constexpr (std::is_same_v<T, RefValue>) {
          return actor_object(Value(std::move(x)));
        } else if constexpr (std::is_same_v<T, ValueList>) {
          nb::list out;
          for (Value& element : x) out.append(conversion_of(std::move(element)));
          return out;
        } else if constexpr (std::is_same_v<T, ValueMap>) {
          nb::dict out;
          for (auto& [key, element] : x) out[key.c_str()] = conversion_of(std::move(element));
          return out;
        } else {
          return nb::cast(std::move(x));
        }
      },
      value.v);
}

ValueList values_of(const nb::args& args) {
  ValueList out;
  out.reserve(args.size());
  for (nb::handle h : args) out.push_back(conversion_of(h));
  return out;
}

ValueMap values_of(const nb::kwargs& kwargs) {
  ValueMap out;
  for (auto [key, element] : kwargs) out[nb::cast<std::string>(key)] = conversion_of(element);
  return out;
}

Tensors tensors_of(nb::handle object, std::string_view what) {
  Value value = conversion_of(object);
  if (value.is_null()) return {};
  if (auto* t = value.get_if<Tensor>()) return {*t};
  Tensors out;
  auto* list = value.get_if<ValueList>();
  if (!list) throw_invalid(std::string(what) + " takes a tensor or a list of them, got " + value.describe());
  for (const Value& element : *list) {
    if (!element.get_if<Tensor>())
      throw_invalid(std::string(what) + " takes tensors, got " + element.describe());
    out.push_back(*element.get_if<Tensor>());
  }
  return out;
}

Tensor tensor_of(nb::handle object, std::string_view what) {
  const Value value = conversion_of(object);
  if (const auto* t = value.get_if<Tensor>()) return *t;
  if (const auto* i = value.get_if<int64_t>()) return tensor(*i, int64);
  if (const auto* d = value.get_if<double>()) return tensor(*d, float32);
  throw_invalid(std::string(what) + " takes a tensor, got " + value.describe());
}

std::map<std::string, Tensor> state_at(nb::handle state, const char* call) {
  const auto refuse = [&](const std::string& got) __attribute__((noreturn)) {
    throw_invalid(std::string(call) +
                  " takes a dict of tensors by name, as state_dict() gives it and load_safetensors(path) "
                  "reads it; got " +
                  got);
  };
  if (!PyDict_Check(state.ptr())) refuse(std::string("a ") + Py_TYPE(state.ptr())->tp_name);
  std::map<std::string, Tensor> out;
  const Value value = conversion_of(state);
  for (const auto& [name, v] : *value.get_if<ValueMap>()) {
    if (!v.get_if<Tensor>()) refuse(v.describe() + " as " + name);
    out[name] = *v.get_if<Tensor>();
  }
  return out;
}

nb::object dtype_object(DType dtype) { return nb::borrow(dtype_objects[static_cast<int>(dtype)]); }

void open_values(nb::module_& m) {
  using Type = const DTypeObject&;
  nb::class_<DTypeObject>(m, "dtype", "The type of a tensor's elements: troupe.float32.")
      .def_prop_ro("name", [](Type t) { return std::string(name(t.dtype)); })
      .def_prop_ro(
          "itemsize", [](Type t) { return item_size(t.dtype); }, "Bytes of an element.")
      .def_prop_ro("is_floating_point", [](Type t) { return is_floating(t.dtype); })
      .def("__repr__", [](Type t) { return "troupe." + std::string(name(t.dtype)); });
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    dtype_objects[i] = nb::cast(DTypeObject{dtype}).release();
    m.attr(std::string(name(dtype)).c_str()) = dtype_objects[i];
  }
  nb::class_<Device>(m, "device", "Where elements are: device(\"cpu\").")
      .def("__init__", [](Device* d, const std::string& text) { new (d) Device(text); })
      .def_prop_ro("type", [](Device d) { return d.str().substr(0, d.str().find(':')); })
      .def("__str__", [](Device d) { return d.str(); })
      .def("__repr__", [](Device d) { return "device(type='" + d.str() + "')"; })
      .def("__eq__", [](Device a, Device b) { return a == b; })
      .def(
          "__eq__", [](Device, nb::handle) { return nb::not_implemented(); }, nb::arg().none())
      .def("__hash__", [](Device d) { return std::hash<std::string>()(d.str()); });
}

}  // namespace troupe::python
