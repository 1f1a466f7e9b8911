// The cluster's secret, read from a file that only its owner can read.
#pragma once
#include <string>

namespace troupe::internal::net {

/// A token is at least this long; what is shorter can be guessed.
inline constexpr size_t kMinTokenBytes = 16;

/// The content of `path`, without white space around it. Throws `invalid`, naming the file and what is wrong,
/// as read_secret_file() does, or if it holds no token (shorter than kMinTokenBytes, over 4 KiB, or with
/// control characters inside).
std::string read_token_file(const std::string& path);

/// The user's own token, in this file of the home folder. Where there is none yet, it is made, with its
/// folders and random content, for its owner alone; of processes that come at the same time, on hosts that
/// share the folder too, all get the same one.
std::string own_token_path(const std::string& home);
std::string own_token(const std::string& home);

}  // namespace troupe::internal::net
