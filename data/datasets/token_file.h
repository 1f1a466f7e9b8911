// Files of token ids that may be larger than memory: read where they are asked for.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/generator.h"
#include "data/datasets/dataset.h"
#include "data/formats/unchanged_file.h"

namespace troupe::datasets {

/// A file of ids one behind the other, little-endian and without a header, as nanoGPT and Megatron write
/// their .bin files. A value; copies share the file. Const members may be called from several threads.
class TokenFile {
 public:
  /// `bytes` of each id: 2 (uint16) or 4 (uint32). `invalid`, naming the file, if it has no whole number of
  /// ids, or none.
  explicit TokenFile(const std::string& path, int bytes = 2);

  int64_t size() const { return size_; }  ///< ids
  /// Ids [first, first + count), int64 [count]. `invalid` outside of the file; `failed` if the file was
  /// written to since it was opened.
  Tensor read(int64_t first, int64_t count) const;
  /// `count` windows that begin anywhere in [from, to) and lie in it (to 0: the end), drawn with `random`: x
  /// and y int64 [count, context], as random_windows() of ids in memory, with the same draws.
  Dataset random_windows(int64_t context, int64_t count, Generator& random, int64_t from = 0,
                         int64_t to = 0) const;

 private:
  std::shared_ptr<const UnchangedFile> file_;
  int bytes_;
  int64_t size_;
};

/// Writes such a file; it appears when it is whole. `invalid` for an id that does not fit into `bytes`.
void write_token_file(const std::string& path, const std::vector<int64_t>& ids, int bytes = 2);

}  // namespace troupe::datasets
