#include "ops/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/cumulative.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/promote.h"
#include "ops/index.h"
#include "ops/logic.h"
#include "ops/nonzero.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/scatter.h"
#include "ops/sort.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

[[noreturn]] void refuse_order(const char* op, const std::string& text) {
  throw_invalid(fmt::format("[{}] {}", op, text));
}
void require_given(const char* op, const Tensor& x) {
  if (!x.defined()) refuse_order(op, "got an undefined tensor");
}

// On the host, with halves and small integers widened.
Tensor on_host(const Tensor& x) {
  const Tensor t = to(x.detach(), cpu);
  return (t.dtype() == boolean ? to(t, int64) : to(t, compute_dtype(t.dtype()))).contiguous_data();
}

// Calls f(T{}) for what on_host() gives.
template <class F>
void visit_host(DType t, F&& f) {
  if (t == int64) return f(int64_t{});
  t == float64 ? f(double{}) : f(float{});
}

// Whether b takes the place of a, which was before; also where they are equal.
template <class T>
bool takes_over(T a, T b, bool largest) {
  if (b != b) return true;
  return a == a && (largest ? b >= a : b <= a);
}

ValuesAndIndices running(const char* op, const Tensor& x, int64_t dim, bool largest) {
  require_given(op, x);
  const int d = x.shape().axis(dim, op);
  if (x.dim() == 0) return {clone(x), zeros({}, {int64, x.device()})};
  const Tensor data = on_host(x), places = empty(x.shape(), int64);
  const int64_t n = x.shape()[d], step = x.shape().contiguous_strides()[d];
  visit_host(data.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = data.data<T>();
    int64_t* to = places.data<int64_t>();
    for (int64_t line = 0, lines = n ? x.numel() / n : 0; line < lines; ++line) {
      const int64_t base = line / step * step * n + line % step;
      int64_t best = 0;
      for (int64_t i = 0; i < n; ++i) {
        if (takes_over(from[base + best * step], from[base + i * step], largest)) best = i;
        to[base + i * step] = best;
      }
    }
  });
  const Tensor at = to(places, x.device());
  return {gather(x, d, at), at};
}

// Gives the lines in the order that the sorter says.
Tensor as_sorted(const Tensor& lines, const Tensor& sorter) {
  constexpr const char* kName = "searchsorted";
  require_given(kName, lines);
  if (sorter.dtype() != int64 || sorter.shape() != lines.shape() || lines.dim() == 0)
    refuse_order(kName, fmt::format("sorter must be int64 {}, as sorted_sequence, got {}",
                                    lines.shape().str(), sorter.summary()));
  return gather(lines.detach(), -1, sorter);  // refuses numbers out of range
}

// Rows [n, each] of elements that are not: whether row a comes before row b. NaN is the largest.
template <class T>
bool row_before(const T* a, const T* b, int64_t each) {
  for (int64_t i = 0; i < each; ++i) {
    if (a[i] < b[i] || (b[i] != b[i] && a[i] == a[i])) return true;
    if (b[i] < a[i] || (a[i] != a[i] && b[i] == b[i])) return false;
  }
  return false;
}

// The first row of each kind in order, the kind of each row of x [n, each] on the host, and how many there
// are.
struct RowKinds {
  std::vector<int64_t> first, inverse, counts;
};
template <class T>
RowKinds kinds_of(const T* rows, int64_t n, int64_t each) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return row_before(rows + a * each, rows + b * each, each); });
  RowKinds out;
  out.inverse.resize(order.size());
  for (const int64_t row : order) {
    const T* begin = rows + row * each;
    if (out.first.empty() || !std::equal(begin, begin + each, rows + out.first.back() * each)) {
      out.first.push_back(row);
      out.counts.push_back(0);
    }
    ++out.counts.back();
    out.inverse[static_cast<size_t>(row)] = static_cast<int64_t>(out.first.size()) - 1;
  }
  return out;
}

Unique unique_slices(const Tensor& x, int64_t dim) {
  const Tensor all = x.detach();
  const int d = all.shape().axis(dim, "unique");
  if (x.dim() == 0) refuse_order("unique", "a 0-d tensor has no slices: leave out dim");
  const int64_t n = all.shape()[d];
  int64_t each = 1;
  for (int i = 0; i < x.dim(); ++i) each *= i == d ? 1 : x.shape()[i];
  if (each == 0)
    refuse_order("unique", fmt::format("slices along dimension {} of {} have no elements", d, x.summary()));
  const Tensor data = on_host(movedim(all, d, 0));
  RowKinds kinds;
  visit_host(data.dtype(), [&](auto zero) { kinds = kinds_of(data.data<decltype(zero)>(), n, each); });
  const auto there = [&](const std::vector<int64_t>& t) { return tensor(t, x.device()); };
  return {index_select(all, d, there(kinds.first)), there(kinds.inverse), there(kinds.counts)};
}

// `y` sorted along its last dimension [.., n]: the elements at fractions of n - 1.
Tensor between_elements(const Tensor& y, double q, const std::string& interpolation) {
  const int64_t n = y.size(-1);
  const double rank = q * static_cast<double>(n - 1), low = std::floor(rank), high = std::ceil(rank);
  const auto at = [&](double i) { return select(y, -1, static_cast<int64_t>(i)); };
  if (interpolation == "lower" || low == high) return at(low);
  if (interpolation == "higher") return at(high);
  if (interpolation == "nearest") return at(std::nearbyint(rank));
  return lerp(at(low), at(high), interpolation == "midpoint" ? 0.5 : rank - low);
}

void check_quantile(const Tensor& x, const Tensor& q, const std::string& interpolation) {
  constexpr const char* kName = "quantile";
  require_given(kName, x);
  require_given(kName, q);
  if (x.dtype() != float32 && x.dtype() != float64)
    refuse_order(kName, "needs float32 or float64, got " + x.summary() + "; use .to()");
  if (grad_enabled() && q.requires_grad()) refuse_order(kName, "q has no gradient: detach() it");
  if (q.dim() > 1 || q.dtype() != x.dtype())
    refuse_order(kName, fmt::format("q must be a number or {} [n], got {}", name(x.dtype()), q.summary()));
  constexpr std::string_view kKnown[] = {"linear", "lower", "higher", "midpoint", "nearest"};
  if (std::ranges::find(kKnown, interpolation) == std::end(kKnown))
    refuse_order(kName,
                 fmt::format("interpolation must be \"linear\", \"lower\", \"higher\", \"midpoint\" or "
                             "\"nearest\", got \"{}\"",
                             interpolation));
  for (const double v : q.to_vector<double>())
    if (!(v >= 0 && v <= 1)) refuse_order(kName, fmt::format("q must be in [0, 1], got {}", v));
  if (x.numel() == 0) refuse_order(kName, "of no elements: " + x.summary());
}

}  // namespace

ValuesAndIndices cummax(const Tensor& x, int64_t dim) { return running("cummax", x, dim, true); }
ValuesAndIndices cummin(const Tensor& x, int64_t dim) { return running("cummin", x, dim, false); }

ValuesAndIndices kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  require_given("kthvalue", x);
  if (x.dtype() == boolean)
    refuse_order("kthvalue", "is not for bool, got " + x.summary() + "; use .to(int64)");
  const int d = x.shape().axis(dim, "kthvalue");
  const int64_t n = x.dim() ? x.shape()[d] : 1;
  if (k < 1 || k > n)
    refuse_order("kthvalue", fmt::format("k is {}, expected 1 to {} for {}", k, n, x.summary()));
  if (x.dim() == 0) return {clone(x), zeros({}, {int64, x.device()})};
  const auto [values, places] = sort(x, d);
  const auto pick = [&](const Tensor& t) { return keepdim ? slice(t, d, k - 1, k) : select(t, d, k - 1); };
  return {clone(pick(values)), clone(pick(places))};
}

Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                const std::string& interpolation) {
  if (const auto y = under_autocast("quantile", {&x, &q}, [&](const auto& in) {
        return quantile(in[0], in[1], dim, keepdim, interpolation);
      }))
    return *y;
  check_quantile(x, q, interpolation);
  const int d = dim && x.dim() ? x.shape().axis(*dim, "quantile") : 0;
  const Tensor lines = dim && x.dim() ? movedim(x, d, -1) : reshape(x, {x.numel()});
  const Tensor y = sort(lines, -1).values, last = select(y, -1, lines.size(-1) - 1), nan = isnan(last);
  Tensors parts;
  for (const double v : q.to_vector<double>()) {
    const Tensor cut = where(nan, last, between_elements(y, v, interpolation));
    if (!keepdim)
      parts.push_back(cut);
    else
      parts.push_back(dim && x.dim() ? unsqueeze(cut, d) : reshape(cut, to_list(Shape::filled(x.dim(), 1))));
  }
  if (q.dim() == 0) return parts[0];
  if (parts.empty()) return zeros({0}, x.options());
  return stack(parts, 0);
}
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim,
                const std::string& interpolation) {
  require_given("quantile", x);
  if (const auto y = under_autocast(
          "quantile", {&x}, [&](const auto& in) { return quantile(in[0], q, dim, keepdim, interpolation); }))
    return *y;
  return quantile(x, wrapped(Scalar(q), is_floating(x.dtype()) ? x.dtype() : float64, x.device()), dim,
                  keepdim, interpolation);
}

Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool right, const Tensor& sorter) {
  constexpr const char* kName = "searchsorted";
  if (sorter.defined()) return searchsorted(as_sorted(sorted_sequence, sorter), values, right);
  require_given(kName, sorted_sequence);
  require_given(kName, values);
  if (sorted_sequence.dim() == 0) refuse_order(kName, "sorted_sequence must be [.., n], got a 0-d tensor");
  if (sorted_sequence.dtype() != values.dtype())
    refuse_order(kName, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them",
                                    sorted_sequence.summary(), values.summary()));
  const bool one = sorted_sequence.dim() == 1;
  Shape lines = sorted_sequence.shape(), of_values = values.shape();
  if (!one) {
    if (of_values.rank() == lines.rank()) of_values.back() = lines.back() = 1;
    if (of_values != lines)
      refuse_order(kName, fmt::format("values {} do not fit the lines of {}: only the last sizes may differ",
                                      values.shape().str(), sorted_sequence.shape().str()));
  }
  const Tensor line = on_host(sorted_sequence), v = on_host(values), places = empty(values.shape(), int64);
  const int64_t n = sorted_sequence.size(-1), each = one ? std::max<int64_t>(v.numel(), 1) : values.size(-1);
  visit_host(line.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto before = [](T a, T b) { return a < b || (b != b && a == a); };  // NaN is the largest
    for (int64_t i = 0; i < v.numel(); ++i) {
      const T* begin = line.data<T>() + (one ? 0 : i / each * n);
      const T value = v.data<T>()[i];
      const T* at = right ? std::upper_bound(begin, begin + n, value, before)
                          : std::lower_bound(begin, begin + n, value, before);
      places.data<int64_t>()[i] = at - begin;
    }
  });
  return to(places, values.device());
}
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool right) {
  require_given("bucketize", boundaries);
  if (boundaries.dim() != 1) refuse_order("bucketize", "boundaries must be [n], got " + boundaries.summary());
  return searchsorted(boundaries, values, right);
}

Unique unique(const Tensor& x, std::optional<int64_t> dim) {
  require_given("unique", x);
  if (dim) return unique_slices(x, *dim);
  const int64_t n = x.numel();
  const auto [values, order] = sort(reshape(x.detach(), {n}), 0);
  const TensorOptions whole{int64, x.device()};
  if (n == 0) return {values, zeros(x.shape(), whole), zeros({0}, whole)};
  const Tensor first = ones({1}, {boolean, x.device()});
  const Tensor begins = cat({first, ne(slice(values, 0, 1), slice(values, 0, 0, n - 1))});
  const Tensor starts = reshape(nonzero(begins), {-1});
  const Tensor group = sub(cumsum(begins, 0), 1);
  const Tensor ends = cat({slice(starts, 0, 1), full({1}, n, whole)});
  return {index_select(values, 0, starts),
          reshape(index_copy(zeros({n}, whole), 0, order, group), to_list(x.shape())), sub(ends, starts)};
}

}  // namespace troupe::ops
