// What a GPU's matrix unit and its copies into shared memory do, for the host's compiler: fragments lie as
// PTX ISA 8 says (mma.m16n8k16, mma.m16n8k8, ldmatrix); what a copy brings is there when it was waited for,
// and poison before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>

namespace sim_cuda {

/// Of all threads, since the last reset.
struct MatrixCounts {
  uint64_t products = 0;   ///< mma instructions of warps
  uint64_t loads = 0;      ///< ldmatrix instructions of warps
  uint64_t conflicts = 0;  ///< passes over the banks of shared memory beyond the least, of reads that count
  uint64_t copied_bytes = 0;  ///< from global to shared memory
};
MatrixCounts matrix_counts();
void reset_matrix_counts();

enum class Factor : uint8_t { bfloat16, float16, tf32 };

/// d += a b, for the lanes of a warp together: D [16, 8] in float, A [16, k], B [k, 8], k = 16 or, of
/// tf32, 8. What a lane has of them: four words of d and a, two of b.
struct Product {
  float* d;
  const uint32_t *a, *b;
};
/// One product after the other.
void multiply(Factor type, std::span<const Product> products, const std::source_location& at);
/// Four matrices [8, 8] of 2-byte elements, transposed or not: lane l gives the address of row l % 8 of
/// matrix l / 8.
void load_matrices(uint32_t (&r)[4], const void* row, bool transposed, const std::source_location& at);
/// `bytes` (4 or 16) from global to shared memory, or zeros if they are not there.
void copy_async(void* to, const void* from, unsigned bytes, bool there, const std::source_location& at);
void commit_copies();
/// For all groups of this thread but the last n. Those of others are there behind the next barrier.
void wait_for_copies(unsigned n);
/// The lanes of a warp read `bytes` each from shared memory: counts conflicts. They do not wait for each
/// other: the n-th reads of all lanes since the last meeting are one instruction.
void count_shared_read(const void* p, unsigned bytes);

/// Of the emulator: what the thread that ends has not waited for; and no copies and reads of a block before.
bool has_copies(unsigned thread);
void forget_copies();

}  // namespace sim_cuda
