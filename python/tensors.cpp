// Tensor in Python: operators by name, arithmetic, elements, gradients.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "autograd/engine.h"
#include "autograd/hooks.h"
#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/codec/codec.h"
#include "core/graph/autocast.h"
#include "ops/ops.h"
#include "python/conversion.h"
#include "python/elements.h"
#include "script/catalog.h"
#include "script/operators.h"
#include "script/tensors.h"

namespace troupe::python {
namespace {

using namespace nb::literals;

nb::object results_of(ValueList out) {
  if (out.size() == 1) return conversion_of(std::move(out[0]));
  nb::list all;
  for (Value& v : out) all.append(conversion_of(std::move(v)));
  return nb::tuple(all);
}

nb::object run(const std::string& name, ValueList positional, ValueMap named) {
  ValueList out;
  {
    const nb::gil_scoped_release free;
    script::gather_sizes(name, positional);
    out = script::run_operator(name, std::move(positional), std::move(named));
  }
  return results_of(std::move(out));
}

// ---- arithmetic

bool operand(nb::handle h) {
  return PyLong_Check(h.ptr()) || PyFloat_Check(h.ptr()) || nb::isinstance<Tensor>(h) ||
         (!PyUnicode_Check(h.ptr()) && !h.is_none() &&
          (PyObject_HasAttrString(h.ptr(), "__dlpack__") || PyIndex_Check(h.ptr()) ||
           (Py_TYPE(h.ptr())->tp_as_number && Py_TYPE(h.ptr())->tp_as_number->nb_float)));
}

struct Arithmetic {
  const char *op, *left, *right;
};
constexpr Arithmetic kArithmetic[] = {
    {"add", "__add__", "__radd__"},
    {"sub", "__sub__", "__rsub__"},
    {"mul", "__mul__", "__rmul__"},
    {"div", "__truediv__", "__rtruediv__"},
    {"pow", "__pow__", "__rpow__"},
    {"remainder", "__mod__", "__rmod__"},
    {"floor_divide", "__floordiv__", "__rfloordiv__"},
    {"matmul", "__matmul__", "__rmatmul__"},
    {"lt", "__lt__", nullptr},
    {"le", "__le__", nullptr},
    {"gt", "__gt__", nullptr},
    {"ge", "__ge__", nullptr},
    {"eq", "__eq__", nullptr},
    {"ne", "__ne__", nullptr},
    {"bitwise_and", "__and__", "__rand__"},
    {"bitwise_or", "__or__", "__ror__"},
    {"bitwise_xor", "__xor__", "__rxor__"},
};

void def_arithmetic(nb::class_<Tensor>& c) {
  for (const Arithmetic& a : kArithmetic) {
    const std::string op = a.op;
    c.def(
        a.left,
        [op](const Tensor& x, nb::handle y) -> nb::object {
          if (!operand(y)) return nb::not_implemented();
          return run(op, {x, conversion_of(y)}, {});
        },
        nb::arg().none());
    if (!a.right) continue;
    c.def(
        a.right,
        [op](const Tensor& x, nb::handle y) -> nb::object {
          if (!operand(y)) return nb::not_implemented();
          return run(op, {conversion_of(y), x}, {});
        },
        nb::arg().none());
  }
  for (const auto& [op, method] :
       {std::pair{"add_", "__iadd__"}, {"sub_", "__isub__"}, {"mul_", "__imul__"}, {"div_", "__itruediv__"}})
    c.def(method, [op = std::string(op)](nb::object self, nb::handle y) -> nb::object {
      if (!operand(y)) return nb::not_implemented();
      (void)run(op, {nb::cast<const Tensor&>(self), conversion_of(y)}, {});
      return self;
    });
  c.def("__neg__", [](const Tensor& x) { return run("neg", {x}, {}); })
      .def("__pos__", [](const Tensor& x) { return x; })
      .def("__abs__", [](const Tensor& x) { return run("abs", {x}, {}); })
      .def("__invert__", [](const Tensor& x) { return run("logical_not", {x}, {}); });
}

// ---- elements

nb::object number_of(const Tensor& t) {
  if (t.dtype() == boolean) return nb::cast(t.item() != 0);
  return t.is_floating_point() ? nb::cast(t.item()) : nb::cast(t.item<int64_t>());
}

template <class T>
nb::object nested(const Tensor& t, int dim, size_t& at, const std::vector<T>& elements) {
  if (dim == t.dim()) return nb::cast(T(elements[at++]));
  nb::list out;
  for (int64_t i = 0; i < t.shape()[dim]; ++i) out.append(nested(t, dim + 1, at, elements));
  return out;
}
nb::object to_list(const Tensor& t) {
  size_t at = 0;
  if (t.dtype() == boolean) return nested(t, 0, at, t.to_vector<bool>());
  if (t.is_floating_point()) return nested(t, 0, at, t.to_vector<double>());
  return nested(t, 0, at, t.to_vector<int64_t>());
}

nb::tuple sizes_of(const Shape& shape) {
  nb::list out;
  for (int d = 0; d < shape.rank(); ++d) out.append(shape[d]);
  return nb::tuple(out);
}

void def_properties(nb::class_<Tensor>& c) {
  c.def("__repr__", [](const Tensor& x) { return x.str(); })
      .def("sizes", [](const Tensor& x) { return sizes_of(x.shape()); })
      .def("stride", [](const Tensor& x) { return sizes_of(x.strides()); })
      .def("stride", [](const Tensor& x, int64_t d) { return x.stride(d); })
      .def_prop_ro("dtype", [](const Tensor& x) { return dtype_object(x.dtype()); })
      .def_prop_ro("device", [](const Tensor& x) { return x.device(); })
      .def_prop_ro("ndim", &Tensor::dim)
      .def("dim", &Tensor::dim)
      .def("numel", &Tensor::numel)
      .def("nelement", &Tensor::numel)
      .def("element_size", &Tensor::element_size)
      .def_prop_ro("nbytes", &Tensor::nbytes)
      .def("data_ptr", [](const Tensor& x) { return reinterpret_cast<uintptr_t>(x.bytes()); })
      .def("is_contiguous", &Tensor::is_contiguous)
      .def("is_floating_point", &Tensor::is_floating_point)
      .def("storage_offset", &Tensor::storage_offset)
      .def("is_same", &Tensor::is_same, "Whether both are one tensor, not only of equal elements.")
      .def("size_of", [](const Tensor& x, int64_t d) { return x.size(d); });
}

void def_elements(nb::class_<Tensor>& c) {
  c.def("item", number_of, "The only element, as a Python number.")
      .def("tolist", to_list, "All elements, as nested lists.")
      .def(
          "numpy", [](const Tensor& x) { return array_of(x, true); },
          "The elements as an array of NumPy, which shares them.")
      .def(
          "__array__",
          [](const Tensor& x, nb::handle dtype, nb::handle) {
            nb::object array = array_of(x, true);
            return dtype.is_none() ? array : array.attr("astype")(dtype);
          },
          "dtype"_a = nb::none(), "copy"_a = nb::none())
      .def("__dlpack__",
           [](const Tensor& x, nb::kwargs kwargs) { return array_of(x, false).attr("__dlpack__")(**kwargs); })
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(1, 0); })
      .def("__len__", [](const Tensor& x) { return x.size(0); })
      .def("__float__", [](const Tensor& x) { return x.item(); })
      .def("__int__", [](const Tensor& x) { return nb::int_(number_of(x)); })
      .def("__index__",
           [](const Tensor& x) {
             if (x.is_floating_point()) throw nb::type_error("only tensors of one integer are indices");
             return nb::int_(number_of(x));
           })
      .def("__bool__",
           [](const Tensor& x) {
             if (x.numel() != 1)
               throw_invalid("a tensor of " + std::to_string(x.numel()) +
                             " elements is neither true nor false: write x.any() or x.all()");
             return x.item() != 0;
           })
      .def(
          "__getitem__", [](const Tensor& x, nb::handle i) { return element_of(x, i); }, nb::arg().none())
      .def(
          "__setitem__", [](Tensor& x, nb::handle i, nb::handle v) { set_element(x, i, v); },
          nb::arg().none(), nb::arg());
}

// ---- gradients

// A hook of Python's, called by a backward pass, which has let go of the interpreter's lock.
Tensor call_hook(const nb::callable& hook, const Tensor& gradient) {
  const nb::gil_scoped_acquire lock;
  const nb::object result = hook(gradient);
  return result.is_none() ? Tensor() : nb::cast<Tensor>(result);
}

void def_gradients(nb::class_<Tensor>& c) {
  c.def_prop_rw(
       "requires_grad", [](const Tensor& x) { return x.requires_grad(); },
       [](Tensor& x, bool on) { x.requires_grad_(on); })
      .def_prop_rw(
          "grad",
          [](const Tensor& x) -> nb::object {
            Tensor g = x.grad();
            return g.defined() ? nb::cast(std::move(g)) : nb::none();
          },
          [](Tensor& x, nb::handle g) { x.set_grad(g.is_none() ? Tensor() : tensor_of(g, "x.grad")); },
          nb::for_setter(nb::arg("value").none()))
      .def_prop_ro("is_leaf", &Tensor::is_leaf)
      .def("has_history", [](const Tensor& x) { return static_cast<bool>(x.grad_fn().node); })
      .def(
          "requires_grad_",
          [](nb::object self, bool on) {
            nb::cast<Tensor&>(self).requires_grad_(on);
            return self;
          },
          "requires_grad"_a = true, "Marks a leaf: backward() leaves its gradient in x.grad.")
      .def("detach", &Tensor::detach, "The same elements, without a history.")
      .def(
          "backward",
          [](const Tensor& x, nb::handle gradient, bool retain_graph, bool create_graph) {
            const Tensor g = gradient.is_none() ? Tensor() : tensor_of(gradient, "x.backward(gradient)");
            const nb::gil_scoped_release free;
            x.backward(g, retain_graph, create_graph);
          },
          "gradient"_a = nb::none(), "retain_graph"_a = false, "create_graph"_a = false,
          "Adds the gradients of this tensor into the .grad of all leaves, in this process.")
      .def(
          "register_hook",
          [](const Tensor& x, nb::callable hook) {
            auto held = std::shared_ptr<nb::callable>(new nb::callable(std::move(hook)), [](nb::callable* h) {
              const nb::gil_scoped_acquire lock;
              delete h;
            });
            return autograd::register_hook(x, [held](const Tensor& g) { return call_hook(*held, g); });
          },
          "Calls a function with the gradient in every pass; what it returns takes its place.");
}

nb::object gradients_of(nb::handle outputs, nb::handle inputs, nb::handle weights, bool retain, bool create) {
  const Tensors of = tensors_of(outputs, "grad(outputs)"), to = tensors_of(inputs, "grad(inputs)"),
                by = tensors_of(weights, "grad(grad_outputs)");
  Tensors found;
  {
    const nb::gil_scoped_release free;
    found = autograd::grad(of, to, by, {.retain_graph = retain, .create_graph = create});
  }
  return conversion_of(Value(ValueList(found.begin(), found.end())));
}

// Modes of the thread, while a `with` of Python's lasts.
struct ModeScope {
  std::unique_ptr<GradMode> grad;
  std::unique_ptr<AutocastGuard> half;
  std::unique_ptr<NoAutocastGuard> off;
  void end() { grad.reset(), half.reset(), off.reset(); }
};

void def_modes(nb::module_& m) {
  nb::class_<ModeScope>(m, "ModeScope")
      .def(nb::init<>())
      .def("record", [](ModeScope& s, bool on) { s.grad = std::make_unique<GradMode>(on); })
      .def(
          "autocast",
          [](ModeScope& s, nb::handle dtype) {
            if (dtype.is_none())
              s.off = std::make_unique<NoAutocastGuard>();
            else
              s.half = std::make_unique<AutocastGuard>(Codec<DType>::from(conversion_of(dtype)));
          },
          nb::arg().none())
      .def("end", &ModeScope::end);
  m.def("is_grad_enabled", [] { return grad_enabled(); });
  m.def(
      "manual_seed", [](int64_t seed) { manual_seed(static_cast<uint64_t>(seed)); }, "seed"_a,
      "Begins the random numbers of this thread anew.");
  m.def("grad", gradients_of, "outputs"_a, "inputs"_a, "grad_outputs"_a.none(), "retain_graph"_a,
        "create_graph"_a);
}

nb::list catalog_list() {
  nb::list out;
  for (const script::Section& section : script::catalog())
    for (const Entry& e : section.entries) {
      nb::list parameters;
      for (const Parameter& p : e.parameters)
        parameters.append(nb::make_tuple(p.name, p.type, p.standard ? conversion_of(*p.standard) : nb::none(),
                                         p.standard.has_value()));
      out.append(nb::make_tuple(section.prefix, section.title, e.name, nb::tuple(parameters), e.result,
                                e.text, e.signature()));
    }
  return out;
}

}  // namespace

void open_tensors(nb::module_& m) {
  nb::class_<autograd::HookHandle>(m, "HookHandle").def("remove", &autograd::HookHandle::remove);
  nb::class_<Tensor> c(m, "Tensor",
                       "Numbers of one dtype in some dimensions, with what they were computed from.");
  c.def("__init__", [](Tensor* t, nb::handle data) {  // as torch.Tensor(data): float32
    const Value value = conversion_of(data);
    const auto* given = value.get_if<Tensor>();
    new (t) Tensor(given ? ops::to(*given, float32) : script::tensor_of(value, float32, "list"));
  });
  def_properties(c);
  def_elements(c);
  def_gradients(c);
  def_arithmetic(c);
  m.def("run", [](const std::string& name, nb::args args, nb::kwargs kwargs) {
    return run(name, values_of(args), values_of(kwargs));
  });
  m.def(
      "tensor",
      [](nb::handle data, nb::handle dtype) {
        std::optional<DType> type;
        if (!dtype.is_none()) type = Codec<DType>::from(conversion_of(dtype));
        const Value value = conversion_of(data);
        if (const auto* given = value.get_if<Tensor>())
          return type ? ops::to(given->detach(), *type).clone_data() : given->clone_data();
        return script::tensor_of(value, type, "list");
      },
      "data"_a.none(), "dtype"_a.none());
  m.def("to_device", [](const Tensor& x, const std::string& device) { return ops::to(x, Device(device)); });
  m.def("from_dlpack", tensor_of_array, "A tensor of another library's elements, without a copy.");
  m.def("catalog", catalog_list);
  def_modes(m);
}

}  // namespace troupe::python
