// How the elements of several ranks become one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/tensor/dtype.h"

namespace troupe {

/// What a group makes of its members' elements. `mean` is for floating dtypes; NaN wins in `min` and `max`,
/// which are "and" and "or" for bool.
enum class ReduceOp : uint8_t { sum, mean, min, max };

namespace internal::collective {

inline constexpr int kReduceOpCount = 4;
std::string_view name(ReduceOp op);
/// `invalid` if elements of that dtype have no such result. `what`: "all_reduce".
void check_reduction(std::string_view what, ReduceOp op, DType dtype);

/// out[i] of summands[r][i], r in the order of ranks, combined in order_of_sum() and then divided. `out` may
/// be one of the summands. Halves are computed with in float32, and rounded once.
void reduce_elements(ReduceOp op, DType dtype, std::byte* out, std::span<const std::byte* const> summands,
                     size_t count, size_t divide_by = 1);

}  // namespace internal::collective
}  // namespace troupe
