// The sort that kernels share.
#pragma once
#include <cstdint>

#include "core/memory/device.h"

namespace troupe::ops::on_cuda {

/// Pairs of keys and places, sorted by the low `bits` bits of the keys, of which all others are 0; equal ones
/// stay in their order. All arrays have n elements in the device's memory; what is read is not what is
/// written.
template <class K>
struct Pairs {
  int64_t n;
  const K* keys;
  K* sorted_keys;
  const int64_t* places;
  int64_t* sorted_places;
  int bits;
};
void sort_pairs(const char* name, Device device, const Pairs<uint32_t>& pairs);
void sort_pairs(const char* name, Device device, const Pairs<uint64_t>& pairs);

/// Bits that hold every number below n > 0.
constexpr int bits_below(int64_t n) {
  int bits = 1;
  while (bits < 63 && n > int64_t{1} << bits) ++bits;
  return bits;
}

}  // namespace troupe::ops::on_cuda
