// The table, part two: reductions, running sums, order.
#include "ops/ops.h"
#include "tests/oracle/programs/calls.h"

namespace troupe::testing {
namespace {

using Ints = std::vector<int64_t>;

// f(x, dims, keepdim)
template <class F>
Function over_dims(F f) {
  return [f](const Arguments& a) -> Tensors { return {f(a.tensor(0), a.dims(1), a.flag("keepdim", false))}; };
}

// f(x, dim)
template <class F>
Function along(F f) {
  return [f](const Arguments& a) -> Tensors {
    if (a.option("keepdim")) throw NotHere("keepdim");
    return {f(a.tensor(0), a.integer(1))};
  };
}

Tensors both(ValuesAndIndices found) { return {found.values, found.indices}; }

}  // namespace

void add_reductions(Calls& calls) {
  calls["sum"] = over_dims([](const Tensor& x, const Ints& d, bool keep) { return x.sum(d, keep); });
  calls["mean"] = over_dims([](const Tensor& x, const Ints& d, bool keep) { return x.mean(d, keep); });
  calls["amax"] = over_dims([](const Tensor& x, const Ints& d, bool keep) { return x.amax(d, keep); });
  calls["amin"] = over_dims([](const Tensor& x, const Ints& d, bool keep) { return x.amin(d, keep); });
  calls["prod"] = over_dims([](const Tensor& x, const Ints& d, bool keep) { return ops::prod(x, d, keep); });
  calls["any"] = over_dims([](const Tensor& x, const Ints& d, bool keep) { return ops::any(x, d, keep); });
  calls["all"] = over_dims([](const Tensor& x, const Ints& d, bool keep) { return ops::all(x, d, keep); });
  calls["logsumexp"] =
      over_dims([](const Tensor& x, const Ints& d, bool keep) { return ops::logsumexp(x, d, keep); });
  calls["var"] = [](const Arguments& a) -> Tensors {
    return {a.tensor(0).var(a.dims(1), a.flag("unbiased", true), a.flag("keepdim", false))};
  };
  calls["std"] = [](const Arguments& a) -> Tensors {
    return {ops::std(a.tensor(0), a.dims(1), a.flag("unbiased", true), a.flag("keepdim", false))};
  };
  calls["norm"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).norm()}; };
  calls["argmax"] = [](const Arguments& a) -> Tensors {
    if (a.size() == 1) return {ops::argmax(a.tensor(0))};
    return {ops::argmax(a.tensor(0), a.integer(1), a.flag("keepdim", false))};
  };
  calls["argmin"] = [](const Arguments& a) -> Tensors {
    if (a.size() == 1) return {ops::argmin(a.tensor(0))};
    return {ops::argmin(a.tensor(0), a.integer(1), a.flag("keepdim", false))};
  };
  calls["max"] = [](const Arguments& a) -> Tensors {
    if (a.size() == 1) return {ops::max(a.tensor(0))};
    return both(ops::max(a.tensor(0), a.integer(1), a.flag("keepdim", false)));
  };
  calls["min"] = [](const Arguments& a) -> Tensors {
    if (a.size() == 1) return {ops::min(a.tensor(0))};
    return both(ops::min(a.tensor(0), a.integer(1), a.flag("keepdim", false)));
  };
  calls["median"] = [](const Arguments& a) -> Tensors { return {ops::median(a.tensor(0))}; };
  calls["count_nonzero"] =
      over_dims([](const Tensor& x, const Ints& d, bool) { return ops::count_nonzero(x, d); });
  calls["cumprod"] = along([](const Tensor& x, int64_t d) { return ops::cumprod(x, d); });
  calls["diff"] = [](const Arguments& a) -> Tensors { return {ops::diff(a.tensor(0))}; };
  calls["softmax"] = along([](const Tensor& x, int64_t d) { return x.softmax(d); });
  calls["log_softmax"] = along([](const Tensor& x, int64_t d) { return x.log_softmax(d); });
  calls["cumsum"] = along([](const Tensor& x, int64_t d) { return x.cumsum(d); });
  calls["sort"] = [](const Arguments& a) {
    return both(a.tensor(0).sort(a.integer(1), a.flag("descending", false)));
  };
  calls["topk"] = [](const Arguments& a) { return both(a.tensor(0).topk(a.integer(1), a.integer(2))); };
  calls["argsort"] = along([](const Tensor& x, int64_t d) { return ops::argsort(x, d); });
}

}  // namespace troupe::testing
