// Steps of an optimizer on some rows of a table: the others, and their state, are not touched.
#pragma once
#include <map>
#include <string>

#include "core/tensor/tensor.h"
#include "core/value/value.h"

namespace troupe::parallel {

/// The state of an optimizer for the rows of one table. Rows that a step names are copied out with their
/// state, updated by the optimizer of optim/ as if they were all there is, and copied back. So weight decay
/// and momentum reach a row only in steps that name it; what depends on the number of steps takes that of the
/// table, as PyTorch's SparseAdam does.
class RowOptimizer {
 public:
  /// `optimizer`: a name that optim::make() knows. `invalid` for "lamb", "adafactor", "muon" and "rprop",
  /// which do not work row by row.
  explicit RowOptimizer(std::string optimizer);
  /// table [rows, ..] contiguous, ids int64 [k] distinct and in range (the caller's to see to), grads [k, ..]
  /// of the table's dtype.
  void step(const Tensor& table, const Tensor& ids, const Tensor& grads, const ValueMap& options);

  /// For load(), of a table of that shape; lazy copies.
  Value saved() const;
  /// `invalid`, with nothing changed, if it does not fit.
  void load(Value saved, const Shape& table);

 private:
  std::string optimizer_;
  int64_t steps_ = 0;
  std::map<std::string, Tensor> slots_;  // by name, each of the table's shape
};

/// table[ids]: slices along dimension 0, copied. ids in range.
Tensor rows_of(const Tensor& table, const Tensor& ids);
/// table[ids] = rows.
void put_rows(const Tensor& table, const Tensor& ids, const Tensor& rows);

}  // namespace troupe::parallel
