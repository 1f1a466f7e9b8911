// A tensor of a whole model, put together of what actors have of it.
#pragma once
#include <optional>
#include <string>

#include "autograd/distributed/optim/placement.h"
#include "data/checkpoint/assembly.h"

namespace troupe::optim {

class WholeTensor {
 public:
  /// `what` names it in errors; `remedy` ends that of elements that differ.
  WholeTensor(std::string what, std::string remedy) : what_(std::move(what)), remedy_(std::move(remedy)) {}
  /// Takes what `who` has: contiguous, on the CPU. `invalid` if shape, dtype, or elements that somebody
  /// before has, too, are others.
  void add(const std::string& who, const Tensor& part, const Placement& place);
  bool is_begun() const { return all_.has_value(); }
  int64_t missing() const { return all_->missing(); }
  const Shape& shape() const { return all_->whole().shape(); }
  Tensor take() && { return std::move(*all_).whole(); }

 private:
  const std::string what_, remedy_;
  std::string first_;  // who gave the first part
  std::optional<datasets::detail::Assembly> all_;
};

}  // namespace troupe::optim
