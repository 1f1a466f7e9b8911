#include "data/streams/files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "core/base/error.h"

namespace troupe::datasets::detail {

std::vector<std::string> files_of(const std::vector<std::string>& paths, const char* tag,
                                  const std::vector<std::string>& endings) {
  namespace fs = std::filesystem;
  if (paths.empty()) throw_invalid(fmt::format("[{}] no file was given", tag));
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    std::error_code none;
    if (!fs::is_directory(path, none)) {
      all.push_back(path);
      continue;
    }
    std::vector<std::string> there;
    for (fs::directory_iterator at(path, none), end; !none && at != end; at.increment(none))
      if (const std::string name = at->path().filename().string();
          name[0] != '.' && std::ranges::any_of(endings, [&](const auto& e) { return name.ends_with(e); }))
        there.push_back(at->path().string());
    if (none) throw_invalid(fmt::format("[{}] {}: the folder cannot be read: {}", tag, path, none.message()));
    if (there.empty())
      throw_invalid(fmt::format("[{}] {}: the folder has no file that ends with {}", tag, path,
                                fmt::join(endings, " or ")));
    std::ranges::sort(there);
    all.insert(all.end(), there.begin(), there.end());
  }
  return all;
}

}  // namespace troupe::datasets::detail
