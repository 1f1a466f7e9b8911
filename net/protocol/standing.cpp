#include "net/protocol/standing.h"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.h"
#include "net/protocol/keys.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kSecret = 64, kJob = 16;  // digits of a pass

std::string derived(const std::string& token, Standing of, uint64_t job) {
  std::string digits;
  for (const std::byte b : derived_key(token, of == Standing::guest ? "guest" : "member", job))
    digits += fmt::format("{:02x}", std::to_integer<int>(b));
  return digits;
}

}  // namespace

std::string guest_pass(const std::string& token, const std::string& job) {
  const uint64_t number = job_number(token, job);
  return derived(token, Standing::guest, number) + fmt::format("{:016x}", number);
}

uint64_t job_of_pass(const std::string& pass) {
  uint64_t job = 0;
  const bool digits = pass.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (pass.size() != kSecret + kJob || !digits)
    throw_invalid("[net] this is no guest's pass; expected 80 digits, 0 to 9 and a to f");
  std::from_chars(pass.data() + kSecret, pass.data() + pass.size(), job, 16);
  return job;
}

std::string Credentials::secret(Standing of, uint64_t job) const {
  return own_ == Standing::guest ? token_.substr(0, kSecret) : derived(token_, of, job);
}

}  // namespace troupe::internal::net
