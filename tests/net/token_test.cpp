// A token file is taken only when nobody else can read it.
#include "net/protocol/token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <vector>

#include "core/base/error.h"

using troupe::internal::net::own_token;
using troupe::internal::net::own_token_path;
using troupe::internal::net::read_token_file;

namespace {

/// A folder of its own, removed at the end.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-token-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& text, mode_t mode) {
    const auto name = (path / "token").string();
    std::ofstream(name, std::ios::binary | std::ios::trunc) << text;
    chmod(name.c_str(), mode);
    return name;
  }
};

const std::string kSecret = "0123456789abcdef";

}  // namespace

TEST_CASE("a private token file gives its content without white space around it", "[token]") {
  Folder folder;
  CHECK(read_token_file(folder.file(kSecret, 0600)) == kSecret);
  CHECK(read_token_file(folder.file("  " + kSecret + "\r\n\n", 0400)) == kSecret);
}

TEST_CASE("the user's own token is made once, for its owner alone, whoever comes first", "[token]") {
  Folder folder;
  std::vector<std::future<std::string>> all;
  for (int n = 0; n < 8; ++n) all.push_back(std::async(std::launch::async, own_token, folder.path.string()));
  const std::string token = own_token(folder.path);
  CHECK(token.size() == 64);
  for (auto& other : all) CHECK(other.get() == token);
  const auto path = own_token_path(folder.path);
  CHECK(read_token_file(path) == token);
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  const auto beside = std::filesystem::directory_iterator(std::filesystem::path(path).parent_path());
  CHECK(std::distance(begin(beside), end(beside)) == 1);  // no draft is left

  Folder other;
  CHECK(own_token(other.path) != token);
  chmod(path.c_str(), 0644);
  CHECK_THROWS_WITH(own_token(folder.path), Catch::Contains(path) && Catch::Contains("0644"));
}

TEST_CASE("where the user's own token cannot be made, the file and what to set are named", "[token]") {
  Folder folder;
  const std::string home = folder.file("no folder", 0600);
  CHECK_THROWS_WITH(own_token(home), Catch::Contains(own_token_path(home) + " cannot be made: ") &&
                                         Catch::Contains("set TROUPE_TOKEN_FILE"));
}

TEST_CASE("a token file that others can get at is refused, naming file and mode", "[token]") {
  Folder folder;
  for (mode_t mode : {0640, 0604, 0620, 0602, 0644, 0610}) {
    const auto path = folder.file(kSecret, mode);
    try {
      read_token_file(path);
      FAIL("taken with mode " << std::oct << mode);
    } catch (const troupe::Error& e) {
      CHECK(e.kind() == troupe::ErrorKind::invalid);
      CHECK(e.message().find(path) != std::string::npos);
      std::ostringstream text;
      text << "0" << std::oct << mode;
      CHECK(e.message().find(text.str()) != std::string::npos);
    }
  }
}

TEST_CASE("what holds no token is refused", "[token]") {
  Folder folder;
  CHECK_THROWS_WITH(read_token_file(folder.file("short\n", 0600)), Catch::Contains("holds 5 bytes"));
  CHECK_THROWS_WITH(read_token_file(folder.file("", 0600)), Catch::Contains("holds 0 bytes"));
  CHECK_THROWS_WITH(read_token_file(folder.file(std::string(5000, 'x'), 0600)), Catch::Contains("over 4096"));
  CHECK_THROWS_WITH(read_token_file(folder.file(kSecret + std::string(1, '\0') + "x", 0600)),
                    Catch::Contains("control"));
  CHECK_THROWS_WITH(read_token_file((folder.path / "none").string()), Catch::Contains("No such file"));
  CHECK_THROWS_WITH(read_token_file(folder.path.string()), Catch::Contains("regular file"));
  const auto fifo = (folder.path / "fifo").string();
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(read_token_file(fifo), Catch::Contains("regular file"));
}
