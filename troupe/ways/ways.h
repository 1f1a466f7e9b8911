// Which way tensors take between the devices of a cluster's workers: what Cluster::ways() and `troupe ways`
// tell.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// Of tensors of a device of one worker, in messages to another one.
struct TensorWay {
  std::string from, from_device;  ///< "w0", "cuda:0"
  std::string to, to_device;      ///< where they arrive; no device: they are refused
  std::string way;                ///< "NCCL 2.28.9", "shared memory", "pinned memory, then TCP", "none", ...
  int64_t at_least = 0;           ///< from so many bytes on
  std::string below;              ///< the way of what is smaller; empty if nothing is
  std::string why;                ///< why no better one; empty if there is none
  bool operator==(const TensorWay&) const = default;
};

/// Of operations of a group of all workers. Of other groups Group::print() tells.
struct GroupWay {
  std::string operation;  ///< "all_reduce"; empty: all that take tensors of these devices
  std::string devices;    ///< "cpu", or one of each worker: "w0 cuda:0, w1 cuda:0"
  std::string way;        ///< "direct", "NCCL 2.28.9", ...
  int64_t at_least = 0;   ///< from so many bytes on
  std::string why;
  bool operator==(const GroupWay&) const = default;
};

struct Ways {
  std::vector<TensorWay> tensors;
  std::vector<GroupWay> groups;
  /// As tables for people: what several pairs of workers have in common is there once.
  std::string print() const;
};

}  // namespace troupe
