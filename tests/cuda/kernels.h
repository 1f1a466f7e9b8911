// Kernels for tests, some of them wrong. All tensors are contiguous.
#pragma once
#include <cstdint>

#include "core/tensor/tensor.h"

namespace troupe::testing {

/// out = in * by, for the first n elements, whatever the tensors have.
void scale(const Tensor& out, const Tensor& in, float by, int64_t n);
/// The same, with the pointers in an object.
void scale_by_object(const Tensor& out, const Tensor& in, float by);

enum class SharedBy { dynamic_memory, static_memory, no_barrier };
/// out[b] = the sum of the b-th `block` elements (a power of 2).
void sum_blocks(const Tensor& out, const Tensor& in, unsigned block, SharedBy shared);
/// out[i] = the sum of all elements of i's warp.
void sum_warps(const Tensor& out, const Tensor& in);
/// out[i] = three times the sum of `in`, of a block of warps, which sums twice; unless `apart` in the same shared
/// memory with no barrier between the two.
void sum_twice(const Tensor& out, const Tensor& in, bool apart);
/// counts[x] += 1 for every x in `in` (int32).
void count(const Tensor& counts, const Tensor& in);
/// Threads with even numbers wait elsewhere than those with odd ones.
void wait_apart(Device device);
/// Half of a warp waits for all of it.
void wait_for_missing_lanes(Device device);
void launch_with(Device device, unsigned blocks, unsigned threads, size_t shared_bytes);

/// Element 0 of a fresh tensor that is filled with 1 on the device's stream, read by a second stream, and
/// filled with 2 then.
float read_on_second_stream(Device device, bool waits);
/// The first half of a tensor is written on the device's stream, the second one, and `overlap` elements
/// before it, by a second stream that does not wait for that.
void write_halves(Device device, int64_t overlap);
/// As read_on_second_stream() with a wait of the host in place of the stream's.
float read_after_the_host_waited(Device device);
/// An allocation that is freed on one stream while another still has to read it.
void free_before_second_stream(Device device);

}  // namespace troupe::testing
