// IDX files (the format of MNIST), plain or gzipped, read strictly; and the MNIST data set made of four of
// them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/shape.h"
#include "core/tensor/tensor.h"
#include "data/datasets/dataset.h"

namespace troupe::datasets {

/// The bytes of one IDX file: zero, zero, type, number of dimensions, big-endian 32-bit sizes, elements row
/// by row.
struct Idx {
  Shape shape;
  std::vector<uint8_t> values;  ///< shape.numel() of them
};

/// Reads a file of unsigned bytes (type 0x08), gzipped or not (its content tells). Inflates no more than the
/// header declares and one byte. `invalid`, naming file, byte, what was found and what was expected: not a
/// regular file, wrong magic, cut short, bytes too many, more than 4 GiB declared, broken gzip.
/// `unimplemented` for the other element types of the format.
Idx read_idx(const std::string& path);

/// Images [n, rows, columns] as float32 [n, rows * columns], each pixel / 255 in [0, 1].
Tensor images(const std::string& path);
/// Labels [n] as int64 [n].
Tensor labels(const std::string& path);

/// MNIST (or another set of the same form) in `dir`: the train-* files if they are there, else the t10k-*
/// files; each plain or with .gz. x is [n, 784] for the real one. `invalid` if files are missing or do not
/// fit together, or a label is over 9.
Dataset mnist(const std::string& dir);
/// Learns from the train-* files and tests on t10k-*. With t10k-* alone, the first four fifths (8,000 images)
/// are for training and the rest for testing.
Split mnist_split(const std::string& dir);

}  // namespace troupe::datasets
