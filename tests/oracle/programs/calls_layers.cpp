// The table, part five: products, losses, layers.
#include "ops/ops.h"
#include "tests/oracle/programs/calls.h"

namespace troupe::testing {
namespace {

template <class F>
Function loss(F f) {
  return [f](const Arguments& a) -> Tensors {
    return {f(a.tensor(0), a.tensor(1), a.text("reduction", "mean"))};
  };
}

}  // namespace

void add_layers(Calls& calls) {
  calls["matmul"] = [](const Arguments& a) -> Tensors { return {a.tensor(0).matmul(a.tensor(1))}; };
  calls["linear"] = [](const Arguments& a) -> Tensors { return {ops::linear(a.tensor(0), a.tensor(1))}; };
  calls["outer"] = [](const Arguments& a) -> Tensors { return {ops::outer(a.tensor(0), a.tensor(1))}; };
  calls["layer_norm"] = [](const Arguments& a) -> Tensors {
    return {ops::layer_norm(a.tensor(0), a.ints(1))};
  };
  calls["one_hot"] = [](const Arguments& a) -> Tensors { return {ops::one_hot(a.tensor(0), a.integer(1))}; };
  calls["pad"] = [](const Arguments& a) -> Tensors { return {ops::pad(a.tensor(0), a.ints(1))}; };
  calls["mse_loss"] = loss([](auto x, auto y, auto r) { return ops::mse_loss(x, y, r); });
  calls["l1_loss"] = loss([](auto x, auto y, auto r) { return ops::l1_loss(x, y, r); });
  calls["smooth_l1_loss"] = loss([](auto x, auto y, auto r) { return ops::smooth_l1_loss(x, y, r); });
  calls["cross_entropy"] = loss([](auto x, auto y, auto r) { return ops::cross_entropy(x, y, r); });
}

}  // namespace troupe::testing
