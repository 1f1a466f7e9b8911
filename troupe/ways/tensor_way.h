// The choice of a tensor's way, from what a worker knows of both ends.
#pragma once
#include <string>

#include "core/memory/device.h"
#include "net/transport.h"
#include "troupe/ways/ways.h"

namespace troupe::internal {

/// Of a pair of devices of two workers.
struct WayFacts {
  net::LinkState link;
  bool same_host = false;
  Device here = cpu, there = cpu;
  std::string library = {};  ///< "NCCL 2.28.9", if it takes them,
  size_t library_from = 0;   ///< from so many bytes on;
  std::string why_not = {};  ///< else why not
};
/// Without names of workers and devices.
TensorWay way_of(const WayFacts& facts);

}  // namespace troupe::internal
