// The table, part three: views and the copies beside them.
#include "ops/ops.h"
#include "tests/oracle/programs/calls.h"

namespace troupe::testing {

void add_shapes(Calls& calls) {
  calls["transpose"] = [](const Arguments& a) -> Tensors {
    return {a.tensor(0).transpose(a.integer(1), a.integer(2))};
  };
  calls["permute"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).permute(a.ints(1))}; };
  calls["unsqueeze"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).unsqueeze(a.integer(1))}; };
  calls["squeeze"] = [](const Arguments& a) -> Tensors {
    return {a.size() == 1 ? ops::squeeze(a.tensor(0)) : a.tensor(0).squeeze(a.integer(1))};
  };
  calls["reshape"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).reshape(a.ints(1))}; };
  calls["view"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).view(a.ints(1))}; };
  calls["flatten"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).flatten()}; };
  calls["expand"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).expand(a.ints(1))}; };
  calls["flip"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).flip(a.ints(1))}; };
  calls["roll"] = [](const Arguments& a) -> Tensors {
    return {ops::roll(a.tensor(0), {a.integer(1)}, {a.integer(2)})};
  };
  calls["repeat"] = [](const Arguments& a) -> Tensors { return {ops::repeat(a.tensor(0), a.ints(1))}; };
  calls["tril"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).tril()}; };
  calls["t"] = [](const Arguments& a) -> Tensors { return {ops::t(a.tensor(0))}; };
  calls["movedim"] = [](const Arguments& a) -> Tensors {
    return {ops::movedim(a.tensor(0), a.integer(1), a.integer(2))};
  };
  calls["narrow"] = [](const Arguments& a) -> Tensors {
    return {ops::narrow(a.tensor(0), a.integer(1), a.integer(2), a.integer(3))};
  };
  calls["unbind"] = [](const Arguments& a) { return ops::unbind(a.tensor(0), a.integer(1)); };
  calls["contiguous"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).contiguous()}; };
  calls["clone"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).clone()}; };
  calls["detach"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).detach()}; };
}

}  // namespace troupe::testing
