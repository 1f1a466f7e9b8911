#include "net/protocol/keys.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>
#include <new>

namespace troupe::internal::net {

Key keyed_hash(const std::string& token, std::string_view text) {
  Key out;
  unsigned size = 0;
  if (!HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
            reinterpret_cast<unsigned char*>(out.data()), &size) ||
      size != out.size())
    throw std::bad_alloc();  // check_token() has seen that it is there
  return out;
}

uint64_t job_number(const std::string& token, const std::string& job) {
  if (job.empty()) return 0;
  const auto hash = keyed_hash(token, "troupe job " + job);
  uint64_t number = 0;
  std::memcpy(&number, hash.data(), sizeof number);
  return number;
}

Key derived_key(const std::string& token, std::string_view purpose, uint64_t job) {
  std::string text = "troupe key " + std::string(purpose) + '\0';
  text.append(reinterpret_cast<const char*>(&job), sizeof job);
  return keyed_hash(token, text);
}

}  // namespace troupe::internal::net
