// The table, part six: what writes in place, and indexing with brackets.
#include "ops/ops.h"
#include "tests/oracle/programs/calls.h"

namespace troupe::testing {
namespace {

// f(x, tensor) or f(x, number).
template <class F>
Function with(F f) {
  return [f](const Arguments& a) -> Tensors {
    if (a.is_tensor(1)) return {f(a.tensor(0), a.tensor(1))};
    return {a.number(1, [&](auto v) { return f(a.tensor(0), v); })};
  };
}

Slice::Bound bound(const Arg& a) {
  if (a.kind == Arg::Kind::none) return None;
  return Arguments::integer(a);
}

TensorIndex index_of(const Arguments& all, const Arg& a) {
  switch (a.kind) {
    case Arg::Kind::none:
      return None;
    case Arg::Kind::ellipsis:
      return Ellipsis;
    case Arg::Kind::slice:
      return Slice(bound(a.items.at(0)), bound(a.items.at(1)), bound(a.items.at(2)));
    case Arg::Kind::tensor:
      return all.tensor(a);
    default:
      return Arguments::integer(a);
  }
}

// A list is a tuple of indices.
std::vector<TensorIndex> indices(const Arguments& all) {
  const Arg& item = all.arg(1);
  if (item.kind != Arg::Kind::list) return {index_of(all, item)};
  std::vector<TensorIndex> each;
  for (const Arg& a : item.items) each.push_back(index_of(all, a));
  return each;
}

Tensors set_item(const Arguments& a) {
  const Tensor x = a.tensor(0);
  if (a.is_tensor(2))
    x.index_put_(indices(a), a.tensor(2));
  else
    a.number(2, [&](auto v) { x.index_put_(indices(a), v); });
  return {x};
}

}  // namespace

void add_writes(Calls& calls) {
  calls["getitem"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).index(indices(a))}; };
  calls["setitem"] = set_item;
  calls["add_"] = with([](const Tensor& x, auto v) { return x.add_(v); });
  calls["sub_"] = with([](const Tensor& x, auto v) { return x.sub_(v); });
  calls["mul_"] = with([](const Tensor& x, auto v) { return x.mul_(v); });
  calls["div_"] = with([](const Tensor& x, auto v) { return x.div_(v); });
  calls["fill_"] = with([](const Tensor& x, auto v) { return x.fill_(v); });
  calls["copy_"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).copy_(a.tensor(1))}; };
  calls["zero_"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).zero_()}; };
  calls["neg_"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).neg_()}; };
  calls["exp_"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).exp_()}; };
  calls["tanh_"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).tanh_()}; };
  calls["relu_"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).relu_()}; };
  calls["clamp_"] = [](const Arguments& a) -> Tensors {
    return {a.number(
        1, [&](auto min) { return a.number(2, [&](auto max) { return a.tensor(0).clamp_(min, max); }); })};
  };
  calls["masked_fill_"] = [](const Arguments& a) -> Tensors {
    return {a.number(2, [&](auto v) { return a.tensor(0).masked_fill_(a.tensor(1), v); })};
  };
}

}  // namespace troupe::testing
