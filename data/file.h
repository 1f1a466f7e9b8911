// Files of data: opened with care, read by mapping, written whole or not at all.
#pragma once
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace troupe::data {

using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// Opens a regular file for reading. `invalid`, the text starting with "[tag] path: ", if it is none or
/// cannot be opened; pipes and devices are refused without waiting for them. `expected`: "an IDX file".
OpenFile open_regular(const std::string& path, const char* tag, const std::string& expected);

/// The bytes of a file, mapped: pages come from the disk when they are touched. Writing to them changes this
/// process's copy, never the file.
///
/// A file that another program cuts short while it is mapped ends this process with SIGBUS, as with every
/// mapping; files replaced by AtomicFile are safe, since the old one lives on until it is unmapped.
class MappedFile {
 public:
  /// `invalid` as open_regular, and for a file that cannot be mapped. An empty file has no bytes.
  static std::shared_ptr<const MappedFile> open(const std::string& path, const char* tag,
                                                const std::string& expected);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  size_t size() const { return size_; }
  const std::byte* data() const { return data_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile(std::byte* data, size_t size) : data_(data), size_(size) {}
  friend Tensor tensor_in(const std::shared_ptr<const MappedFile>&, size_t, const Shape&, DType);

  std::byte* data_;
  size_t size_;
};

/// The elements at `offset` of a file, row by row, as a tensor that keeps the mapping alive; a copy where
/// they are not aligned for their type. The caller has checked that they lie inside the file.
Tensor tensor_in(const std::shared_ptr<const MappedFile>& file, size_t offset, const Shape& shape,
                 DType dtype);

/// Number of the first byte of [begin, end) that is no bool (0 or 1); -1 if all are. Reading others as bool
/// is undefined in C++.
int64_t find_bad_bool(std::span<const std::byte> bytes);

/// A file that appears under its name when it is complete: written beside it, flushed to the disk, renamed.
/// Gone without a trace if commit() is not reached; the old file of that name stays until then. A process
/// that is killed meanwhile leaves "<path>.writing-<pid>-<number>".
class AtomicFile {
 public:
  /// `invalid`, the text starting with "[tag] path: ", if it is a folder, or in one that is missing or may
  /// not be written.
  AtomicFile(std::string path, const char* tag);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Error kind `failed` if the disk refuses (full, for one).
  void write(const void* bytes, size_t count);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_, temporary_;
  const char* tag_;
  int fd_ = -1;
};

}  // namespace troupe::data
