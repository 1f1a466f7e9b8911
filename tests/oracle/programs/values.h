// Tensors of the programs: made from what the file says, and compared with it.
#pragma once
#include <optional>
#include <string>

#include "core/tensor/tensor.h"
#include "tests/oracle/programs/program.h"

namespace troupe::testing {

/// The dtype of that name; none if there is no such dtype here.
std::optional<DType> dtype_named(const std::string& name);

/// The leaf, marked if it requires a gradient; undefined if its dtype is not here.
Tensor make_tensor(const Leaf& leaf);
/// Numbers of the file in the dtype and shape of `like`.
Tensor make_tensor(const nlohmann::json& data, const Tensor& like);

/// The largest finite absolute value; 0 of none.
double largest(const nlohmann::json& data);
double largest(const Tensor& t);

/// Empty if every element is within `allowed` of the data (integers, booleans, NaN and infinities: the same);
/// else the first that is not.
std::string differs(const Tensor& got, const nlohmann::json& data, double allowed);
/// The same with dtype and shape before.
std::string differs(const Tensor& got, const Wanted& wanted, double allowed);

/// Everything about a tensor that a statement could change: to tell whether it did.
struct Snapshot {
  explicit Snapshot(const Tensor& t);
  bool operator==(const Snapshot&) const = default;
  /// Whether the elements of `t` are these, but for the signs of zeros and NaNs, which the file does not
  /// tell.
  bool same_numbers(const Tensor& t) const;
  DType dtype;
  Shape shape;
  bool requires_grad;
  std::string bits;

 private:
  Tensor copy() const;
};

}  // namespace troupe::testing
