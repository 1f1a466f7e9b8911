// Rows of arrays in files as samples.
#pragma once
#include <string>
#include <vector>

#include "data/streams/source.h"

namespace troupe::datasets {

/// The rows of NPY files, which may be larger than memory: samples of one field. A folder stands for its
/// *.npy. `invalid` as NpyArray, for files whose rows have different types or shapes, and without any row.
SourcePtr npy_rows(const std::vector<std::string>& files, const std::string& field = "x");

/// The rows of safetensors files: a sample has each tensor's row, by the tensor's name. A folder stands for
/// its *.safetensors. `invalid` as Safetensors, for tensors of one file with different numbers of rows, for
/// files with other names, types or shapes of rows than the first, and without any row.
SourcePtr safetensors_rows(const std::vector<std::string>& files);

/// The fields of several sources as one sample: inputs of one file, labels of another one. `invalid` for
/// sources of different sizes; read() refuses a field that two have.
SourcePtr side_by_side(const std::vector<SourcePtr>& sources);

}  // namespace troupe::datasets
