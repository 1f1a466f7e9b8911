// The patterns of ranks on several hosts, of which each block goes between two hosts once: within a host,
// then between the hosts, then within a host.
#pragma once
#include "collective/schedule/block_steps.h"
#include "collective/schedule/hosts.h"

namespace troupe::internal::collective {

// Steps of rank r. A tensor is cut into columns * hosts blocks: a column, which is `hosts` of them, for each
// rank of the host that has the fewest. Between hosts blocks go between ranks of one place.
/// Each column is added up on each host, at one rank; those of a place add theirs up, each a block; and back.
BlockSteps host_all_reduce(size_t r, const HostPlaces& places);
/// Sums are made in the same way, and go to the root, which has the first place of its host.
BlockSteps host_reduce(size_t r, const HostPlaces& places, size_t root);
/// The root's host has all its blocks, the others one each of a column, which they give to each other.
BlockSteps host_broadcast(size_t r, const HostPlaces& places, size_t root);
// Rank k has block k of n, or gets it.
/// A block goes to one rank of each other host, which gives it to those of its own.
BlockSteps host_all_gather(size_t r, size_t n, const HostPlaces& places);
/// A block is added up on each host, at one rank, which gives it to the one whose it is.
BlockSteps host_reduce_scatter(size_t r, size_t n, const HostPlaces& places);

}  // namespace troupe::internal::collective
