// A temporary folder that goes with its scope.
#pragma once
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace troupe::testing {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-test-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// Writes a file in it; returns its path.
  std::string file(const std::string& name, const std::string& content, mode_t mode = 0600) const {
    const std::string at = (path / name).string();
    std::ofstream(at, std::ios::binary) << content;
    chmod(at.c_str(), mode);
    return at;
  }
};

/// What a file holds.
inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace troupe::testing
