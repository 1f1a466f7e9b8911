#include "tests/oracle/programs/values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "core/tensor/creation.h"
#include "ops/view.h"

namespace troupe::testing {
namespace {

using nlohmann::json;

double number(const json& j) {
  if (j.is_boolean()) return j.get<bool>() ? 1 : 0;
  if (j.is_number()) return j.get<double>();
  const std::string text = j.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

template <class T>
std::string text(T value) {
  std::ostringstream out;
  out.precision(17);
  out << value;
  return out.str();
}

template <class T>
std::string complaint(const Tensor& got, size_t i, T has, T wanted) {
  return "element " + std::to_string(i) + " of " + got.summary() + " is " + text(has) + ", expected " +
         text(wanted);
}

// A variable of its own, and no view: programs ask which tensors share memory.
template <class T>
Tensor as(const std::vector<T>& values, const Tensor& like) {
  const Tensor host = empty(like.shape(), dtype_of<T>);
  std::copy(values.begin(), values.end(), host.data<T>());
  return ops::to(host.data_on(like.device()), like.dtype());
}

}  // namespace

std::optional<DType> dtype_named(const std::string& wanted) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name(static_cast<DType>(i)) == wanted) return static_cast<DType>(i);
  return std::nullopt;
}

Tensor make_tensor(const Leaf& leaf) {
  const Wanted& w = leaf.value;
  const auto dtype = dtype_named(w.dtype);
  if (!dtype) return {};
  Tensor t = make_tensor(w.data, empty(Shape(w.shape), {*dtype, leaf.device}));
  if (leaf.view) t = ops::expand(t, w.shape);
  if (w.requires_grad) t.requires_grad_();
  return t;
}

Tensor make_tensor(const json& data, const Tensor& like) {
  if (is_floating(like.dtype())) {
    std::vector<double> values;
    for (const json& v : data) values.push_back(number(v));
    return as(values, like);
  }
  std::vector<int64_t> values;
  for (const json& v : data) values.push_back(v.is_boolean() ? v.get<bool>() : v.get<int64_t>());
  return as(values, like);
}

double largest(const json& data) {
  double top = 0;
  for (const json& v : data)
    if (const double a = std::fabs(number(v)); std::isfinite(a)) top = std::max(top, a);
  return top;
}

double largest(const Tensor& t) {
  double top = 0;
  for (const double v : t.to_vector<double>())
    if (std::isfinite(v)) top = std::max(top, std::fabs(v));
  return top;
}

std::string differs(const Tensor& got, const json& data, double allowed) {
  if (static_cast<size_t>(got.numel()) != data.size())
    return got.summary() + " has " + std::to_string(got.numel()) + " elements, expected " +
           std::to_string(data.size());
  if (!is_floating(got.dtype())) {
    const auto has = got.to_vector<int64_t>();
    for (size_t i = 0; i < has.size(); ++i) {
      const int64_t wanted = data[i].is_boolean() ? data[i].get<bool>() : data[i].get<int64_t>();
      if (has[i] != wanted) return complaint(got, i, has[i], wanted);
    }
    return "";
  }
  const auto has = got.to_vector<double>();
  for (size_t i = 0; i < has.size(); ++i) {
    const double wanted = number(data[i]);
    if (std::isnan(has[i]) ? std::isnan(wanted) : has[i] == wanted) continue;
    if (std::isfinite(has[i]) && std::isfinite(wanted) && std::fabs(has[i] - wanted) <= allowed) continue;
    return complaint(got, i, has[i], wanted);
  }
  return "";
}

std::string differs(const Tensor& got, const Wanted& wanted, double allowed) {
  const Shape shape(wanted.shape);
  if ((!wanted.dtype.empty() && name(got.dtype()) != wanted.dtype) || got.shape() != shape)
    return got.summary() + ", expected " + wanted.dtype + " " + shape.str();
  return differs(got, wanted.data, allowed);
}

Snapshot::Snapshot(const Tensor& t) : dtype(t.dtype()), shape(t.shape()), requires_grad(t.requires_grad()) {
  const Tensor c = t.data_on(cpu).contiguous_data();
  bits.assign(reinterpret_cast<const char*>(c.bytes()), c.nbytes());
}

Tensor Snapshot::copy() const {
  const Tensor t = empty(shape, dtype);
  std::copy(bits.begin(), bits.end(), reinterpret_cast<char*>(t.bytes()));
  return t;
}

bool Snapshot::same_numbers(const Tensor& t) const {
  if (Snapshot(t).bits == bits) return true;
  if (t.dtype() != dtype || !is_floating(dtype)) return false;
  const auto was = copy().to_vector<double>(), is = t.to_vector<double>();
  return std::equal(was.begin(), was.end(), is.begin(), is.end(),
                    [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
}

}  // namespace troupe::testing
