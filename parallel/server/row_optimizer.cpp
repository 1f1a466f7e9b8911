#include "parallel/server/row_optimizer.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/codec/codec.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/inplace_write.h"
#include "core/tensor/creation.h"
#include "optim/optimizer.h"
#include "optim/whole_parameters.h"

namespace troupe::parallel {
namespace {

constexpr int64_t kAhead = 16;    // rows that are on their way from memory
constexpr size_t kLine = 64;      // bytes
constexpr size_t kFetched = 256;  // bytes of a row: by then the processor has seen where this goes

// Calls f(row of the table, row of the rows, bytes) for each id. In a large table, every row is somewhere
// else in memory.
template <class F>
void for_rows(const Tensor& table, const Tensor& ids, const Tensor& rows, F&& f) {
  if (ids.numel() == 0) return;
  const size_t bytes = rows.nbytes() / static_cast<size_t>(ids.numel());
  const int64_t* id = ids.data<int64_t>();
  std::byte *of_table = table.bytes(), *row = rows.bytes();
  const auto fetch = [&](int64_t k) {
    const std::byte* at = of_table + static_cast<size_t>(id[k]) * bytes;
    for (size_t b = 0; b < std::min(bytes, kFetched); b += kLine) __builtin_prefetch(at + b);
  };
  const int64_t n = ids.numel();
  for (int64_t k = 0; k < std::min(n, kAhead); ++k) fetch(k);
  for (int64_t k = 0; k < n; ++k, row += bytes) {
    if (k + kAhead < n) fetch(k + kAhead);
    f(of_table + static_cast<size_t>(id[k]) * bytes, row, bytes);
  }
}

}  // namespace

Tensor rows_of(const Tensor& table, const Tensor& ids) {
  Shape shape = table.shape();
  shape[0] = ids.numel();
  const Tensor rows = empty(shape, table.dtype());
  for_rows(table, ids, rows,
           [](std::byte* of_table, std::byte* row, size_t n) { std::memcpy(row, of_table, n); });
  return rows;
}

void put_rows(const Tensor& table, const Tensor& ids, const Tensor& rows) {
  begin_write(table, "the optimizer's step");
  for_rows(table, ids, rows,
           [](std::byte* of_table, std::byte* row, size_t n) { std::memcpy(of_table, row, n); });
  table.bump_version("the optimizer's step");
}

RowOptimizer::RowOptimizer(std::string optimizer) : optimizer_(std::move(optimizer)) {
  if (optim::needs_whole_parameters(optimizer_) || optimizer_ == "rprop")
    throw_invalid(
        "[table] " + optimizer_ +
        " does not work row by row; expected sgd, adam, adamw, adagrad, rmsprop, adamax or adadelta");
}

Value RowOptimizer::saved() const {
  ValueMap slots;
  for (const auto& [name, t] : slots_) slots.emplace(name, internal::lazy_copy(t));
  return ValueList{Value(steps_), Value(std::move(slots))};
}

void RowOptimizer::load(Value saved, const Shape& table) {
  auto [steps, slots] = internal::from_value<std::pair<int64_t, StateDict>>(std::move(saved));
  for (const auto& [name, t] : slots)
    if (!t.defined() || t.shape() != table)
      throw_invalid("[table] \"" + name + "\" of the checkpoint is " + t.summary() + "; the table is " +
                    table.str());
  steps_ = steps;
  slots_ = std::move(slots);
}

void RowOptimizer::step(const Tensor& table, const Tensor& ids, const Tensor& grads,
                        const ValueMap& options) {
  Tensor rows = rows_of(table, ids);
  const auto one = optim::make(optimizer_, options, {rows});
  if (steps_ > 0) {
    std::map<std::string, Tensor> state{{"0.step", tensor(steps_, int64)}};
    for (const auto& [name, slot] : slots_) state[name] = rows_of(slot, ids);
    one->load_state(state);
  }
  one->step({grads});
  ++steps_;
  for (const auto& [name, value] : one->state()) {
    if (!name.starts_with("0.") || name == "0.step") continue;
    Tensor& slot = slots_[name];
    if (!slot.defined()) slot = zeros(table.shape(), table.dtype());
    put_rows(slot, ids, value);
  }
  put_rows(table, ids, rows);
}

}  // namespace troupe::parallel
