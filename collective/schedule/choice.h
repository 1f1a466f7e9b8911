// Which way an operation is done, chosen from what all ranks know alike, and what each way costs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "collective/schedule/links.h"
#include "collective/schedule/schedule.h"

namespace troupe::internal::collective {

/// Of the busiest rank, if all blocks are of one size: what it sends, and how many messages at most wait for
/// each other, which is exact for powers of two.
struct Cost {
  size_t messages = 0;
  double elements = 0;  ///< or bytes, if `elements` below are bytes
  size_t rounds = 0;
  bool operator==(const Cost&) const = default;
};
/// The formulas. `elements`: those of the problem (of all blocks together). Hosts that have as many ranks as
/// each other.
Cost cost(Collective c, Way way, size_t ranks, double elements, const HostCounts& on = {});
/// Elements that the busiest host sends to the others, where ranks of a host follow each other. (By trees,
/// doubling and halving about that, or less.)
double leaves_host(Collective c, Way way, size_t ranks, double elements, const HostCounts& on);

/// All that the choice depends on: nothing that one rank alone knows, so that all ranks choose alike.
struct Setting {
  Collective collective = Collective::all_reduce;
  size_t ranks = 1;
  size_t bytes = 0;                 ///< of the problem
  HostCounts on = {};               ///< the hosts on which the members are
  std::optional<Way> way = {};      ///< that somebody asks for
  std::optional<Links> links = {};  ///< of several hosts, if all have measured them
};
/// The time that an operation of that setting takes by such links, about. In blocks some of it goes at once.
double seconds_by(const Setting& s, Way way, const Links& links);
struct Choice {
  Way way = Way::direct;
  /// Messages say where the bytes lie, and have none. (A rank whose memory nobody else can read sends them.)
  bool lends = false;
  size_t piece_bytes = kOnePiece;  ///< of a block in one chunk
};
Choice choose(const Setting& s);
/// "direct: 25 MiB are many bytes, so they go in blocks; ...". (Words take longer than the choice, and few
/// read them.)
std::string why_chosen(const Setting& s);
/// "25 MiB"
std::string size_text(size_t bytes);
/// By which all ranks of an operation of devices hear that all have called it: that of a barrier.
Way way_to_meet(size_t ranks);

// What it is chosen by.
inline constexpr size_t kWholeBytes = 32 << 10;  ///< up to that: few rounds count
inline constexpr size_t kWholeBytesOfTwo = 128 << 10;
inline constexpr size_t kLentBytes = 64 << 10;    ///< a block from there on is lent within a host, not sent
inline constexpr size_t kHalvingBytes = 8 << 20;  ///< up to that: a ring of many ranks takes too many rounds
inline constexpr size_t kLeastPiece = 128 << 10, kLargestPiece = 512 << 10;
inline constexpr size_t kLentPiece = 16 << 20;  ///< a larger one holds up other messages while it is added
inline constexpr size_t kWindow = 3;            ///< chunks on their way at once
inline constexpr double kSaves = 0.9;           ///< up to that part between hosts is worth more rounds

}  // namespace troupe::internal::collective
