// Data in zstd are unpacked by libarchive; in a build without it, by nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "data/formats/file.h"

namespace troupe::datasets::detail {

/// `unimplemented`, naming the package, in a build without libarchive.
void need_archive(const char* tag, const std::string& path);

/// The bytes of a file of zstd data.
class ZstdStream {
 public:
  explicit ZstdStream(OpenFile file);
  ~ZstdStream();
  /// Gives up to `count` bytes, none at the end; `wrong` says what is wrong with the data, if anything is.
  size_t read(void* out, size_t count, std::string& wrong);
  uint64_t packed_offset() const;  ///< bytes of the file that were taken

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace troupe::datasets::detail
