#include "core/base/random_bytes.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace troupe::internal {

void random_bytes(void* to, size_t count) {
  for (size_t done = 0; done < count;) {
    const ssize_t got = ::getrandom(static_cast<char*>(to) + done, count - done, 0);
    if (got < 0 && errno != EINTR)
      throw_error(ErrorKind::failed,
                  std::string("the system gives no random bytes: ") + std::strerror(errno));
    if (got > 0) done += static_cast<size_t>(got);
  }
}

uint64_t random_number() {
  uint64_t number = 0;
  random_bytes(&number, sizeof number);
  return number;
}

std::string random_hex(size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string raw(bytes, '\0'), text;
  random_bytes(raw.data(), bytes);
  for (const unsigned char c : raw) text += {kDigits[c >> 4], kDigits[c & 15]};
  return text;
}

}  // namespace troupe::internal
