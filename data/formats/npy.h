// NPY files: one array, as NumPy saves it.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
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

/// Reads a file that is in memory, as a copy. `name` is for errors.
Tensor npy_of(std::span<const std::byte> bytes, const std::string& name);

/// The array of a file that may be larger than memory, by its rows. A value; copies share the file. Const
/// members may be called from several threads.
class NpyArray {
 public:
  /// `invalid` as read_npy(), and for an array without dimensions, or with Fortran's order of elements.
  explicit NpyArray(const std::string& path);
  int64_t rows() const;  ///< its first dimension
  /// The type that its elements are read as, and the shape of a row: "float32 [3, 4]".
  std::string kind() const;
  /// A row, with the types of read_npy(). `failed` if the file was written to since it was opened.
  Tensor row(int64_t number) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Writes version 1, little-endian, row by row. Replaces the file of that name at once when everything is on
/// the disk, or leaves it as it was. `unimplemented`: bfloat16, which NPY has not. `invalid`: an undefined
/// tensor, a missing folder. `failed`: the disk refuses.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace troupe::datasets
