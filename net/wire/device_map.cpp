#include "net/wire/device_map.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::internal::net {

DeviceMap::DeviceMap(Pairs pairs, std::string between)
    : pairs_(std::move(pairs)), between_(std::move(between)) {
  const auto refuse = [&](Device d, const char* why) {
    throw_invalid(fmt::format("[cluster] the device map from {} has {} {}", between_, d.str(), why));
  };
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const auto& [here, there] = pairs_[i];
    if (here.is_cpu() || there.is_cpu()) refuse(cpu, "in it: tensors of the CPU arrive on the CPU");
    for (size_t k = 0; k < i; ++k) {
      if (pairs_[k].first == here) refuse(here, "twice on its left: a device goes to one other");
      if (pairs_[k].second == there)
        refuse(there, "twice on its right: gradients would not find their way back");
    }
  }
}

Device DeviceMap::there(Device here) const {
  if (pairs_.empty() || here.is_cpu()) return here;
  std::string known;
  for (const auto& [from, to] : pairs_) {
    if (from == here) return to;
    known += (known.empty() ? "" : ", ") + from.str() + " -> " + to.str();
  }
  throw_invalid(
      fmt::format("[wire] the device map from {} has no {} (it has {}): add it, or send the tensor "
                  "with .to(cpu)",
                  between_, here.str(), known));
}

DeviceMap DeviceMap::inverse(std::string between) const {
  Pairs turned;
  for (const auto& [here, there] : pairs_) turned.emplace_back(there, here);
  return DeviceMap(std::move(turned), std::move(between));
}

}  // namespace troupe::internal::net
