// Why tensors of devices go by memory of the host, in sentences that name worker, device and remedy. The one
// place of these rules, for operations of groups, tensors of messages, and lists of ways.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collective/nccl/device_operations.h"

namespace troupe::internal::collective {

/// "2.28.9", of 22809.
std::string library_version_text(int64_t version);

/// A device as others name it, "cuda:0 of w1", and what it has told them.
struct NamedPlace {
  std::string name;
  DevicePlace place;
};
/// Why two devices that can use the library do not use it with each other: its versions, or that they are
/// one. Empty if they do.
std::string why_apart(const NamedPlace& a, const NamedPlace& b);

/// Why the library would find no interface for its sockets. `wanted`: NCCL_SOCKET_IFNAME; empty: any will do.
std::string why_no_interface(std::string_view wanted, const std::vector<std::string>& interfaces);

}  // namespace troupe::internal::collective
