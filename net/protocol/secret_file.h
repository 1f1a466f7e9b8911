// A secret that is kept in a file: read only where nobody else can.
#pragma once
#include <sys/types.h>

#include <string>

namespace troupe::internal::net {

/// The content of `path`, which holds a `what` of at most `most` bytes ("token"). Throws `invalid`, naming
/// the file and what is wrong with it: it cannot be read, is no regular file, is open to other users (any
/// group or other permission), belongs to somebody else, or is longer.
std::string read_secret_file(const std::string& path, const std::string& what, size_t most);

}  // namespace troupe::internal::net
