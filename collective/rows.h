// The tensors that ranks bring, checked, and how many rows of one each rank has.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collective/elements.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::collective {

/// The rank that brings it, of how many.
struct Standing {
  size_t rank = 0, ranks = 1;
};

/// `invalid`, beginning with `what`, unless it is defined.
void check_tensor(std::string_view what, const Tensor& x);
/// The same of each, which are of one dtype, that it returns, and on one device.
DType check_list(std::string_view what, const Tensors& xs);

/// The sizes behind the first; the number of rows; both together.
Shape row_of(const Tensor& x);
int64_t rows_of(const Tensor& x);
Shape with_rows(int64_t rows, Shape row);
/// "{2, 0, 1}"
std::string rows_text(const std::vector<int64_t>& rows);
/// Those of all ranks together. `invalid` if no tensor has so many.
int64_t total_rows(std::string_view what, const std::vector<int64_t>& rows, const Shape& row);
/// `all` rows as `rows` says, which may be `invalid`; empty: as evenly as they can be.
std::vector<int64_t> divided(std::string_view what, int64_t all, const std::vector<int64_t>& rows,
                             Standing at);
/// Of each rank.
std::vector<size_t> elements_of(const std::vector<int64_t>& rows, const Shape& row);
/// Rows of a range, in a tensor of its own; on the device if there are none.
Tensor own_rows(const Elements& elements, Range range, int64_t rows, const Shape& row, Device device);

}  // namespace troupe::internal::collective
