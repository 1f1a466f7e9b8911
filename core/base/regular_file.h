// Files that a user names: read as files, never as the pipes and devices that some are.
#pragma once
#include <cstddef>
#include <string>

#include "core/base/descriptor.h"

namespace troupe {

/// Opens one for reading, without waiting for a pipe's writer; its size in bytes goes to `size`. `invalid`,
/// the text starting with `where` ("[npy] "), path and reason, if there is none, it cannot be opened, or is
/// no regular file. `expected`: "an NPY file".
internal::Descriptor open_regular_file(const std::string& path, const std::string& where,
                                       const std::string& expected, size_t& size);

/// Why open() failed, by errno, and what to do where too many files are open.
std::string cannot_be_opened(int error);

/// The content of one that has at most `most` bytes; `invalid` as above, and for one that has more.
std::string read_regular_file(const std::string& path, const std::string& where, const std::string& expected,
                              size_t most);

/// Throws `invalid`, as above, if there is something else than a regular file where one is to be written.
void refuse_unless_writable_file(const std::string& path, const std::string& where);

}  // namespace troupe
