// Which kernel an operator has on which kind of device.
#pragma once
#include <span>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// What a kind of device has for one operator.
struct KernelEntry {
  const char* op;  ///< the operator's name
  Kernel* kernel;
  Kernel* accumulating =
      nullptr;  ///< as kernel, but adds result 0 to what is there; see apply_accumulating()
  /// They take bfloat16 and float16 as they are, compute in float32, and round once.
  bool takes_half = false;
};
using KernelTable = std::span<const KernelEntry>;

/// Says what a kind of device has, once, before its first operator. The tables are constants of the program.
void set_kernels(Device::Kind kind, std::span<const KernelTable> tables);

/// Gives an operator that is defined elsewhere, in a program, its kernel for a kind of device, before it is
/// first used there (at the start of main(), say). `accumulating`: see KernelEntry. `invalid` if `op` has
/// kernels there already, needs none (view, compose), or has the name of an operator that is here.
void register_kernel(const Op& op, Device::Kind kind, Kernel* kernel, Kernel* accumulating = nullptr);

/// find_kernels(), when they were not looked for yet.
const KernelEntry* look_for_kernels(const Op& op, Device::Kind kind);
/// What there is for an operator; null: nothing.
inline const KernelEntry* find_kernels(const Op& op, Device::Kind kind) {
  const auto i = static_cast<size_t>(kind) % kDeviceKinds;
  if (const KernelEntry* found = op.kernels.on[i].load(std::memory_order_relaxed)) [[likely]]
    return found;
  return look_for_kernels(op, kind);
}
inline bool has_kernel(const Op& op, Device device) { return find_kernels(op, device.kind); }

/// Those of the CPU (ops/cpu/table.cpp).
std::span<const KernelTable> cpu_kernels();

}  // namespace troupe::ops
