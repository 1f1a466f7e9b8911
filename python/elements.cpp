#include "python/elements.h"

#include <nanobind/stl/string.h>

#include "core/base/error.h"
#include "core/codec/codec.h"
#include "core/tensor/indexing.h"
#include "ops/ops.h"
#include "script/tensors.h"

namespace troupe::python {
namespace {

Slice slice_of(nb::handle h) {
  const auto bound = [&](const char* name) {
    const nb::object b = h.attr(name);
    if (b.is_none()) return Slice::Bound(None);
    const nb::object whole = nb::steal(PyNumber_Index(b.ptr()));
    if (!whole.is_valid()) throw nb::python_error();
    return Slice::Bound(nb::cast<int64_t>(whole));
  };
  return {bound("start"), bound("stop"), bound("step")};
}

TensorIndex index_of(nb::handle h) {
  PyObject* p = h.ptr();
  if (h.is_none()) return None;
  if (p == Py_Ellipsis) return Ellipsis;
  if (PySlice_Check(p)) return slice_of(h);
  if (PyBool_Check(p)) return tensor(p == Py_True, boolean);
  Value value = conversion_of(h);
  if (const auto* n = value.get_if<int64_t>()) return *n;
  if (auto* t = value.get_if<Tensor>()) return std::move(*t);
  if (value.get_if<ValueList>()) {
    const Tensor places = script::tensor_of(value, {}, "list");
    return places.numel() ? places : ops::to(places, int64);
  }
  throw nb::type_error(
      ("an index of a tensor is a number, a slice, None, ..., a list or a tensor of numbers, or a "
       "mask; got " +
       value.describe())
          .c_str());
}

std::vector<TensorIndex> indices_of(nb::handle h) {
  std::vector<TensorIndex> out;
  if (!PyTuple_Check(h.ptr())) return {index_of(h)};
  for (nb::handle one : h) out.push_back(index_of(one));
  return out;
}

// A number beyond the end is Python's IndexError, by which loops over a sequence end.
void check_range(const Tensor& t, nb::handle h) {
  if (!PyLong_Check(h.ptr()) || PyBool_Check(h.ptr())) return;
  if (t.dim() == 0)
    throw nb::index_error("a tensor of no dimensions has no elements to index: x.item() is its number");
  const auto at = nb::cast<int64_t>(h);
  if (at >= t.size(0) || at < -t.size(0))
    throw nb::index_error(("index " + std::to_string(at) + " is out of range for dimension 0 of size " +
                           std::to_string(t.size(0)))
                              .c_str());
}

// The numbers in any place, as the operators refuse them.
[[noreturn]] void refuse_index(const Error& e) {
  if (e.message().find("out of range for dimension") != std::string::npos) throw nb::index_error(e.what());
  throw e;
}

}  // namespace

Tensor element_of(const Tensor& t, nb::handle indices) {
  check_range(t, indices);
  const std::vector<TensorIndex> at = indices_of(indices);
  try {
    const nb::gil_scoped_release free;
    return t.index(at);
  } catch (const Error& e) {
    refuse_index(e);
  }
}

void set_element(Tensor& t, nb::handle indices, nb::handle value) {
  check_range(t, indices);
  const std::vector<TensorIndex> at = indices_of(indices);
  Value v = conversion_of(value);
  if (v.get_if<ValueList>()) v = script::tensor_of(v, {}, "list");
  const nb::gil_scoped_release free;
  if (const auto* source = v.get_if<Tensor>())
    t.index_put_(at, *source);
  else if (const auto* n = v.get_if<int64_t>())
    t.index_put_(at, Scalar(*n));
  else if (const auto* d = v.get_if<double>())
    t.index_put_(at, Scalar(*d));
  else if (const auto* b = v.get_if<bool>())
    t.index_put_(at, Scalar(*b));
  else
    throw_invalid("elements of a tensor are numbers or tensors, got " + v.describe());
}

}  // namespace troupe::python
