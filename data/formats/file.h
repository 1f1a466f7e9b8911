// Files of data: opened with care, read by mapping, written whole or not at all.
#pragma once
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/descriptor.h"
#include "core/tensor/tensor.h"

namespace troupe::datasets {

using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// Opens a regular file for reading. `invalid`, the text starting with "[tag] path: ", if it is none or
/// cannot be opened; pipes and devices are refused without waiting for them. `expected`: "an IDX file".
OpenFile open_regular(const std::string& path, const char* tag, const std::string& expected);

/// What a file with these first bytes is, and what to do with it, for the error of a reader that cannot read
/// it: ", it is gzip data: ..."; empty if no format is recognized. Archives, formats of tensors, UTF-16;
/// never what may be a text.
std::string instead(std::string_view head);

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

/// Flushes to the disk which names a folder has. `failed` where the disk refuses; file systems that know no
/// such thing are content.
void flush_folder(const std::string& folder, const char* tag);

/// A file that appears under its name when it is complete: written beside it, flushed to the disk, renamed.
/// Gone without a trace if commit() is not reached, or if the process is killed; the old file of that name
/// stays until then. A path that is a symbolic link stays one: the file that it leads to is written.
///
/// Where the file system has no files without a name, a killed process leaves
/// "<path>.writing-<pid>-<number>", which the next AtomicFile of that path removes.
class AtomicFile {
 public:
  /// How large files get to the disk.
  enum class Through {
    cache,  ///< whoever reads it soon finds it in memory
    /// Past the system's cache, where the file system can: at a fifth of the processor's time, for files that
    /// are seldom read.
    disk,
  };
  /// `invalid`, the text starting with "[tag] path: ", if it is a folder or device, or in a folder that is
  /// missing or may not be written. Nothing is left beside it meanwhile, so that making one and letting it go
  /// asks whether a path can be written.
  AtomicFile(std::string path, const char* tag, Through through = Through::cache);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Error kind `failed` if the disk refuses (full, for one), or the limit of a file's size (`ulimit -f`).
  void write(const void* bytes, size_t count);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  std::string next_name() const;
  bool open_unnamed();
  void open_named();
  void put(const void* bytes, size_t count);
  bool pass_cache(bool yes);
  void remove_abandoned() const;

  std::string path_, target_;  // as given; without symbolic links
  std::string temporary_;      // empty: the file has no name yet
  const char* tag_;
  internal::Descriptor fd_;
  struct Block;
  std::unique_ptr<Block> block_;  // what goes past the cache next
  bool passes_cache_ = false;
};
/// One of this text, whole.
void write_file(const std::string& path, std::string_view text, const char* tag);

}  // namespace troupe::datasets
