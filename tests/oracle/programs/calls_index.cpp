// The table, part four: picking, placing and joining elements.
#include "ops/ops.h"
#include "tests/oracle/programs/calls.h"

namespace troupe::testing {

void add_indexing(Calls& calls) {
  calls["index_select"] = [](const Arguments& a) -> Tensors {
    return {a.tensor(0).index_select(a.integer(1), a.tensor(2))};
  };
  calls["gather"] = [](const Arguments& a) -> Tensors {
    return {a.tensor(0).gather(a.integer(1), a.tensor(2))};
  };
  calls["masked_fill"] = [](const Arguments& a) -> Tensors {
    return {a.number(2, [&](auto v) { return a.tensor(0).masked_fill(a.tensor(1), v); })};
  };
  calls["where"] = [](const Arguments& a) -> Tensors {
    const Tensor mask = a.tensor(0), x = a.tensor(1);
    if (a.is_tensor(2)) return {ops::where(mask, x, a.tensor(2))};
    return {a.number(2, [&](auto v) { return ops::where(mask, x, v); })};
  };
  calls["nonzero"] = [](const Arguments& a) -> Tensors { return {ops::nonzero(a.tensor(0))}; };
  calls["masked_select"] = [](const Arguments& a) -> Tensors {
    return {ops::masked_select(a.tensor(0), a.tensor(1))};
  };
  calls["bincount"] = [](const Arguments& a) -> Tensors { return {ops::bincount(a.tensor(0))}; };
  calls["cat"] = [](const Arguments& a) -> Tensors { return {ops::cat(a.tensors(0), a.integer(1))}; };
  calls["stack"] = [](const Arguments& a) -> Tensors { return {ops::stack(a.tensors(0), a.integer(1))}; };
}

}  // namespace troupe::testing
