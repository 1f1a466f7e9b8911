// The hosts of a group's ranks: how many there are, and who does what on each of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::internal::collective {

/// The host of each rank, counted from 0 in the order in which they are met; empty: all are on one.
using HostOfRank = std::vector<uint32_t>;

/// So numbered, from any numbers; empty where these are one.
HostOfRank counted(const HostOfRank& any);
bool is_counted(const HostOfRank& of);

/// Counts that a choice depends on.
struct HostCounts {
  size_t hosts = 1;
  size_t least = 0, most = 0;  ///< ranks on the host that has the fewest, and the most
  bool operator==(const HostCounts&) const = default;
};
HostCounts host_counts(const HostOfRank& of, size_t ranks);

/// The ranks of each host in order, but for one that comes first on its own. Each has a place there.
class HostPlaces {
 public:
  HostPlaces(const HostOfRank& of, size_t ranks, size_t first = SIZE_MAX);
  size_t hosts() const { return ranks_.size(); }
  /// Each host has that many ranks at least: those at these places do what goes between hosts.
  size_t columns() const { return columns_; }
  size_t host(size_t rank) const { return at_[rank].host; }
  size_t place(size_t rank) const { return at_[rank].place; }
  const std::vector<size_t>& of_host(size_t host) const& { return ranks_[host]; }
  size_t rank(size_t host, size_t place) const { return ranks_[host][place]; }
  /// Who on a host has to do with a rank of another one. Each has as many of them as the others, if the hosts
  /// have.
  size_t partner(size_t rank, size_t host) const { return ranks_[host][place(rank) % ranks_[host].size()]; }

 private:
  struct At {
    size_t host, place;
  };
  std::vector<std::vector<size_t>> ranks_;
  std::vector<At> at_;
  size_t columns_ = 0;
};

}  // namespace troupe::internal::collective
