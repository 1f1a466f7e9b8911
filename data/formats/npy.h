// NPY files: one array, as NumPy saves it.
#pragma once
#include <string>

#include "core/tensor/tensor.h"

namespace troupe::datasets {

/// Reads versions 1 to 3, with the names of element types that NumPy knows ("<f4", "f4", "float32"). f2, f4,
/// f8, i4, i8, u1 and b1 keep their type: where the file has them little-endian, row by row and aligned, the
/// tensor is a view of the mapped file (an in-place write changes the memory of this process only), else a
/// contiguous copy. i1, i2, u2 and u4 come as int64, and u8 where its values fit.
///
/// `invalid`, naming file, what was found and what was expected: no NPY file, a header over 65,535 bytes or
/// beyond the file, one that is no dictionary of descr, fortran_order and shape, more or fewer bytes than the
/// shape needs, a bool that is neither 0 nor 1. `unimplemented`: other element types (objects are never read:
/// they are programs).
Tensor read_npy(const std::string& path);

/// Writes version 1, little-endian, row by row. Replaces the file of that name at once when everything is on
/// the disk, or leaves it as it was. `unimplemented`: bfloat16, which NPY has not. `invalid`: an undefined
/// tensor, a missing folder. `failed`: the disk refuses.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace troupe::datasets
