// How a tensor is made: its dtype, its device, and whether it requires a gradient.
#pragma once
#include <optional>

#include "core/memory/device.h"
#include "core/tensor/dtype.h"

namespace troupe {

/// The last argument of every function that makes tensors: a dtype, a device, or several in a chain, as
/// `zeros({2, 3}, dtype(float64).requires_grad())`. An option that is not given has the function's default.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(DType dtype) : dtype_(dtype) {}
  TensorOptions(Device device) : device_(device) {}
  template <size_t n>
  TensorOptions(const char (&device)[n]) : device_(device) {}  ///< "cuda:0"
  TensorOptions(DType dtype, Device device) : dtype_(dtype), device_(device) {}

  TensorOptions dtype(DType t) const {
    return with([&](auto& o) { o.dtype_ = t; });
  }
  TensorOptions device(Device d) const {
    return with([&](auto& o) { o.device_ = d; });
  }
  TensorOptions requires_grad(bool on = true) const {
    return with([&](auto& o) { o.requires_grad_ = on; });
  }

  bool has_dtype() const { return dtype_.has_value(); }
  DType dtype_or(DType standard) const { return dtype_.value_or(standard); }
  Device device_or(Device standard) const { return device_.value_or(standard); }
  bool requires_grad_on() const { return requires_grad_; }

 private:
  TensorOptions with(auto change) const {
    TensorOptions out = *this;
    change(out);
    return out;
  }
  std::optional<DType> dtype_;
  std::optional<Device> device_;
  bool requires_grad_ = false;
};

inline TensorOptions dtype(DType t) { return TensorOptions(t); }
inline TensorOptions device(Device d) { return TensorOptions(d); }
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }

}  // namespace troupe
