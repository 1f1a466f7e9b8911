// The bytes of a file one after the other, unpacked where the file is gzip or zstd data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe::datasets {

/// A file that is read from its begin to its end; its content, and not its name, says whether it is packed.
/// Not synchronized.
class ByteStream {
 public:
  /// `invalid` as open_regular(). `unimplemented` for zstd data in a build without libarchive.
  static std::unique_ptr<ByteStream> open(const std::string& path, const char* tag,
                                          const std::string& expected);
  virtual ~ByteStream() = default;

  /// Reads up to `count` bytes; fewer only at the end of the data, which for packed ones has then passed
  /// their checksums. `invalid`, naming file and byte, for packed data that are broken or cut short;
  /// `unimplemented` for zstd data with a window over 128 MiB.
  size_t read(void* out, size_t count);
  uint64_t offset() const { return offset_; }  ///< bytes that were read so far
  virtual bool packed() const = 0;

 private:
  virtual size_t some(std::byte* out, size_t count) = 0;
  uint64_t offset_ = 0;
};

/// Whether a file begins as gzip or zstd data do. `invalid` as open_regular().
bool is_packed(const std::string& path, const char* tag, const std::string& expected);

}  // namespace troupe::datasets
