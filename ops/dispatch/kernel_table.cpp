#include "ops/dispatch/kernel_table.h"

#include <string_view>

#include "core/base/error.h"

namespace troupe::ops {
namespace {

// By kind; that of the CPU is asked for where it is needed, so that operators run before main, too.
std::span<const KernelTable> tables_of[kDeviceKinds];

}  // namespace

void set_kernels(Device::Kind kind, std::span<const KernelTable> tables) {
  if (kind == Device::Kind::cpu || static_cast<int>(kind) >= kDeviceKinds)
    throw_invalid("[set_kernels] a kind from 1 to " + std::to_string(kDeviceKinds - 1) +
                  " is expected, got " + std::to_string(static_cast<int>(kind)));
  tables_of[static_cast<size_t>(kind)] = tables;
}

const KernelEntry* look_for_kernels(const Op& op, Device::Kind kind) {
  const auto i = static_cast<size_t>(kind);
  if (i >= kDeviceKinds) return nullptr;
  for (const KernelTable table : kind == Device::Kind::cpu ? cpu_kernels() : tables_of[i])
    for (const KernelEntry& entry : table)
      if (std::string_view(entry.op) == op.name) {
        op.kernels.on[i].store(&entry, std::memory_order_relaxed);
        return &entry;
      }
  return nullptr;
}

}  // namespace troupe::ops
