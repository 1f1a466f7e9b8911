// Mixed precision by operators: in which dtype each takes its inputs while autocast is on. The lists are
// PyTorch's.
#pragma once
#include <array>
#include <optional>

#include "core/graph/autocast.h"
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// How an operator or a function takes its floating inputs under autocast; float64 is never cast.
enum class Cast : uint8_t {
  none,      ///< as they come; what it is made of goes by the lists, unless it computes in float32 for halves
  in_parts,  ///< as they come; what it is made of goes by the lists
  as_is,     ///< as they come, and what it is made of, too
  half,      ///< in the thread's halves
  wide,      ///< in float32
  widest,    ///< float32 if one of them is, else halves
  as_first,  ///< computed in the widest, the first result in the dtype of the first input: norms of halves
  refused,   ///< it would lose too much: `invalid` for halves
};
/// An operator or function is known by its name, for each kind of device.
Cast cast_of(std::string_view name, Device::Kind device);

/// Casts what is defined, as the lists say of that name; false: they lack it.
bool cast_listed(std::string_view name, std::span<Tensor> in);

/// For a function that is made of several operators, and that the lists name: f of its inputs, cast, while
/// autocast is off. None where there is nothing to cast: the function goes on.
template <size_t n, class F>
std::optional<Tensor> under_autocast(std::string_view name, const Tensor* const (&given)[n], F&& f) {
  if (autocast_mode() == Autocast::off) [[likely]]
    return {};
  std::array<Tensor, n> in;
  for (size_t i = 0; i < n; ++i) in[i] = *given[i];
  if (!cast_listed(name, in)) return {};
  const AutocastMode off(Autocast::off);
  return f(in);
}

/// What apply() does first while autocast is on: the inputs that the operator gets, and whether what it
/// is made of goes by the lists itself.
struct CastCall {
  Tensors in;
  bool goes_on = false;
  std::optional<DType> first = {};  ///< the first result gets that dtype
};
CastCall cast_for(const Op& op, std::span<const Tensor> in);

}  // namespace troupe::ops
