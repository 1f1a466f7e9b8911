// Samples that are read where they are asked for: of files that may be larger than memory.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/value/value.h"
#include "data/datasets/dataset.h"

namespace troupe::datasets {

/// A sample has fields by name: tensors, numbers, text.
using Sample = ValueMap;

/// Samples by their number. Derive from it for files of your own.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  /// Sample `number`, from 0 to size() - 1; the same each time. Called by several threads at once. `invalid`,
  /// naming file and place, for one that cannot be read; `failed` for a file that was written to meanwhile.
  virtual Sample read(int64_t number) const = 0;
};
using SourcePtr = std::shared_ptr<const Source>;

/// The rows of a set in memory: "x" and "y".
SourcePtr in_memory(Dataset set);

struct TokenWindowOptions {
  int64_t context = 1024;
  int bytes = 2;  ///< of each id in the files: 2 (uint16) or 4 (uint32)
};
/// Windows of token files (TokenFile), side by side, none over the end of a file: "x" int64 [context] and
/// "y", the ids that follow each. `invalid`: no file, none with as many ids as a window needs, or one whose
/// first ids look as if they had another width.
SourcePtr token_windows(const std::vector<std::string>& files, const TokenWindowOptions& options = {});

/// The lines of files of JSON objects, one in each line: its fields. Only where every eighth line begins is
/// in memory. Empty lines are none. `invalid` for a file without lines; read() names file and line of one
/// that is no object.
SourcePtr json_lines(const std::vector<std::string>& files);

struct Part {
  SourcePtr source;
  double weight = 1;
};
/// Several sources as one: each has its share by weight of any samples in a row, the same in every run. A
/// source that is used up begins again, so smaller ones are seen several times. `size` 0: as many as there
/// are in all. `invalid`: no source, a weight that is not above 0, a source without samples.
SourcePtr mixed(const std::vector<Part>& parts, int64_t size = 0);

/// Samples [from, from + count) of a source. `invalid` outside of it.
SourcePtr range_of(SourcePtr source, int64_t from, int64_t count);

}  // namespace troupe::datasets
