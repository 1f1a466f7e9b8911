#include "net/protocol/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/descriptor.h"
#include "core/base/error.h"
#include "core/base/random_bytes.h"
#include "net/protocol/secret_file.h"

namespace troupe::internal::net {
std::string read_token_file(const std::string& path) {
  auto refuse = [&](const std::string& why) { throw_invalid(fmt::format("[token] {}: {}", path, why)); };
  std::string token = read_secret_file(path, "token", 4096);
  token.erase(0, token.find_first_not_of(" \t\r\n"));
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  if (token.size() < kMinTokenBytes)
    refuse(fmt::format("holds {} bytes; expected a token of at least {}", token.size(), kMinTokenBytes));
  if (std::any_of(token.begin(), token.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    refuse("holds control characters; expected one line of text");
  return token;
}

std::string own_token_path(const std::string& home) { return home + "/.config/troupe/token"; }

std::string own_token(const std::string& home) {
  namespace fs = std::filesystem;
  const std::string path = own_token_path(home);
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) return read_token_file(path);
  const auto refuse = [&](int error) {
    throw_invalid(
        fmt::format("[token] {} cannot be made: {}; set TROUPE_TOKEN_FILE to a file that only you can read, "
                    "the same for all "
                    "workers",
                    path, std::strerror(error)));
  };
  std::string text = random_hex(40);
  fs::create_directories(fs::path(path).parent_path(), ignored);
  // Written beside it and then linked: whoever looks sees a whole file or none, on a file server too.
  const std::string draft = path + "." + text.substr(64);
  text.resize(64);
  int error = 0;
  {
    const Descriptor file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file) refuse(errno);
    if (write(file.get(), text.data(), text.size()) != ssize_t(text.size()) || fsync(file.get()) != 0)
      error = errno ? errno : EIO;
  }
  if (!error && link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) error = errno;
  unlink(draft.c_str());
  if (error) refuse(error);
  return read_token_file(path);
}

}  // namespace troupe::internal::net
