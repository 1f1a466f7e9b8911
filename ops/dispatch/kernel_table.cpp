#include "ops/dispatch/kernel_table.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/mutex.h"

namespace troupe::ops {
namespace {

// By kind; that of the CPU is asked for where it is needed, so that operators run before main, too.
std::span<const KernelTable> tables_of[kDeviceKinds];

// Whether an operator that is here has the name of `op`. Before main some may not be made yet.
bool is_taken(const Op& op) {
  return std::any_of(all_ops().begin(), all_ops().end(), [&](const Op* other) {
    return other != &op && other->name && std::string_view(other->name) == op.name;
  });
}

}  // namespace

void set_kernels(Device::Kind kind, std::span<const KernelTable> tables) {
  if (kind == Device::Kind::cpu || static_cast<int>(kind) >= kDeviceKinds)
    throw_invalid("[set_kernels] a kind from 1 to " + std::to_string(kDeviceKinds - 1) +
                  " is expected, got " + std::to_string(static_cast<int>(kind)));
  tables_of[static_cast<size_t>(kind)] = tables;
}

void register_kernel(const Op& op, Device::Kind kind, Kernel* kernel, Kernel* accumulating) {
  const auto refuse = [&](const std::string& why) { throw_invalid("[register_kernel] " + why); };
  if (!op.name) refuse("the operator is not made yet: register its kernel in main()");
  const std::string name = op.name;
  const auto i = static_cast<size_t>(kind);
  if (i >= kDeviceKinds)
    refuse("a kind from 0 to " + std::to_string(kDeviceKinds - 1) + " is expected, got " + std::to_string(i));
  if (!kernel) refuse("the kernel of " + name + " is null");
  if (!op.shape) refuse(name + " has no shape rule: views and compositions need no kernel");
  if (is_taken(op)) refuse("there is an operator named " + name + " already: choose another name");
  if (name.ends_with("_")) refuse("names that end with _, as " + name + ", are kept for updates");
  static troupe::internal::Mutex mutex;
  std::lock_guard lock(mutex);
  if (op.kernels.on[i].load() || std::count(all_ops().begin(), all_ops().end(), &op))
    refuse(name + " has a kernel for this kind of device already");
  // Entries stay for good: operators may run at the very end. Each knows the one before, so that none is
  // lost.
  struct Kept {
    KernelEntry entry;
    Kept* before;
  };
  static constinit Kept* last = nullptr;
  last = new Kept{{op.name, kernel, accumulating}, last};
  op.kernels.on[i].store(&last->entry);
}

const KernelEntry* look_for_kernels(const Op& op, Device::Kind kind) {
  const auto i = static_cast<size_t>(kind);
  if (i >= kDeviceKinds) return nullptr;
  // Names are those of operators that are here; one of a program that has such a name has no kernel.
  if (is_taken(op)) return nullptr;
  for (const KernelTable table : kind == Device::Kind::cpu ? cpu_kernels() : tables_of[i])
    for (const KernelEntry& entry : table)
      if (std::string_view(entry.op) == op.name) {
        op.kernels.on[i].store(&entry, std::memory_order_relaxed);
        return &entry;
      }
  return nullptr;
}

}  // namespace troupe::ops
