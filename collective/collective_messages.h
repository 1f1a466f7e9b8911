// The messages of operations of groups, between the workers of their ranks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "actors/worker/service.h"
#include "collective/matching/operations.h"

namespace troupe::internal::collective {

/// An operation of the receiver's rank, and who speaks of it.
struct RankAddress {
  uint64_t group = 0;
  uint64_t to = 0, from = 0;  ///< ranks
  std::string tag;
  uint64_t use = 0;
};
/// A Signature as it travels. `collective`: of its problem; above that, 1 + Signature::before if there is
/// one.
struct SentSignature {
  uint64_t collective = 0;
  uint64_t ranks = 0, root = 0;
  std::vector<uint64_t> counts;  ///< and behind them the hosts of the ranks, if the way depends on them
  std::string reduction;
  DType dtype = DType::float32;
  std::vector<Shape> shapes;
  Way way = Way::direct;
  uint64_t piece = 0;
  bool on_devices = false;
  uint64_t context = 0;
};

SentSignature to_wire(const Signature& s);
/// `invalid` if it has an operation or a way that there is not.
Signature from_wire(SentSignature s);

using actors::Service;

/// Rank to rank: elements that a step of an operation needs, one tensor behind the other.
inline constexpr Service<void(RankAddress address, SentSignature signature, uint64_t chunk, uint32_t slot,
                              Tensors elements)>
    kPart{"collective.part", {.timeout = Duration(0)}};
/// Rank to rank: the operation has failed. (`worker`: that was lost.)
inline constexpr Service<void(RankAddress address, ErrorKind kind, std::string message, std::string worker)>
    kAbort{"collective.abort", {.timeout = Duration(0)}};
/// Rank to all: its time is over. Whether the rank has called it?
inline constexpr Service<bool(RankAddress address)> kAsk{"collective.ask",
                                                         {.timeout = std::chrono::seconds(1)}};
/// Rank to its own worker: tell when the operation is over. By its deadline the operation has one.
inline constexpr Service<void(RankAddress address)> kOver{"collective.over"};
/// Rank to rank: its block of the lane of that tag. Whether the other one can read there what is written
/// later.
inline constexpr Service<bool(RankAddress address, Tensor block)> kLane{"collective.lane"};
/// Rank to rank, which sleeps: an operation in the lane of that tag is decided.
inline constexpr Service<void(RankAddress address)> kWake{"collective.wake", {.timeout = Duration(0)}};
/// Rank to rank: a tensor for whoever asks for one of that tag. Answered when it has been taken. (`use`: a
/// number, by which the sender can withdraw it.)
inline constexpr Service<void(RankAddress address, Tensor tensor)> kSend{"collective.send",
                                                                         {.in_context = true}};
/// Rank to rank: nobody has taken that tensor in time, or the sender has cancelled it.
inline constexpr Service<void(RankAddress address)> kUnsend{"collective.unsend", {.timeout = Duration(0)}};
/// Rank to its own worker: the next tensor of that tag from that rank, which is of worker `sender`. (`use`: a
/// number, by which the rank can give up.)
inline constexpr Service<Tensor(RankAddress address, WorkerId sender)> kReceive{"collective.receive",
                                                                                {.in_context = true}};

}  // namespace troupe::internal::collective
