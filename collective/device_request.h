// Operations with tensors of devices: from device to device where that can be, else by memory of the host.
#pragma once
#include <string>
#include <vector>

#include "collective/request.h"

namespace troupe::internal::collective {

/// A rank tells the others this before an operation whose sizes they know.
Description description_of(const Request& request);
/// `invalid`, the same on all ranks, if some have tensors of the CPU and others of devices.
void check_memory(const std::vector<Description>& all, const std::vector<GroupMember>& members);
/// Why the tensors go by memory of the host; empty if they do not. The same on all ranks. check_memory() is
/// part of it.
std::string why_by_host(const std::vector<Description>& all, const std::vector<GroupMember>& members);

/// Has its elements go from device to device. `own`: the rank's part, if it is in none of them.
void send_by_devices(Request& request, size_t rank, const Tensor& own = {});
/// Whether any of them has something to do. Then all take part, those of ranks that have no elements as well:
/// they meet as one.
bool needs_devices(const Problem& problem);
/// Brings its elements to memory of the host, for which it waits, and what it gives back to the device.
void send_by_host(Request& request);
/// The same for a rank's tensors, and what is given back.
void bring_to_host(Described& own);
void give_back_to(Device device, Request& request);

/// The members, with their devices.
std::vector<WorkerDevice> devices_of(const std::vector<Description>& all,
                                     const std::vector<GroupMember>& members);

}  // namespace troupe::internal::collective
