// A file of samples: read where they are asked for, for as long as a program trains.
#pragma once
#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <string>

#include "core/base/descriptor.h"

namespace troupe::datasets {

/// A file that has to stay as it was when it was opened: whoever reads one place twice gets the same bytes,
/// or an error. A mapping would end the process instead when the file is cut short. read() may be called from
/// several threads at once.
class UnchangedFile {
 public:
  /// `invalid` as open_regular().
  UnchangedFile(std::string path, const char* tag, const std::string& expected);
  /// Opens a file for reads anywhere. One that is gzip or zstd data is unpacked, as ByteStream does it, into
  /// a file without a name in the folder for temporary files (TMPDIR), which goes with the last owner.
  /// `failed` if that folder has no room.
  static std::shared_ptr<const UnchangedFile> unpacked(const std::string& path, const char* tag,
                                                       const std::string& expected);

  size_t size() const { return size_; }  ///< bytes
  const std::string& path() const { return path_; }
  /// Fills `to` with the bytes from `offset` on, which the caller has checked to lie inside. `failed` if the
  /// file has changed since it was opened, or cannot be read. One that was replaced under its name has not
  /// changed: the old one is read.
  void read(size_t offset, std::span<std::byte> to) const;

 private:
  UnchangedFile(std::string path, const char* tag, internal::Descriptor fd);
  void note_state();

  std::string path_;
  const char* tag_;
  size_t size_ = 0;
  internal::Descriptor fd_;
  timespec written_{};
};

}  // namespace troupe::datasets
