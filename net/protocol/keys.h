// What follows from a token, and says nothing of it: keys, and the numbers of jobs.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::internal::net {

/// What a hello says of the job with that name: nothing to those without the token. 0 for an empty name,
/// which goes with every job.
uint64_t job_number(const std::string& token, const std::string& job);
/// A key for one purpose, from which nothing follows about the token or another key.
using Key = std::array<std::byte, 32>;
Key derived_key(const std::string& token, std::string_view purpose, uint64_t job);
/// HMAC-SHA256 with the token.
Key keyed_hash(const std::string& token, std::string_view text);

}  // namespace troupe::internal::net
