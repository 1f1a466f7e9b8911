#include "data/streams/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "core/base/ascii.h"
#include "core/base/error.h"

namespace troupe::datasets {
namespace {

namespace fs = std::filesystem;

bool is_picture(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), lower);
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

// The pictures below each folder of this one, by its name; "" has those that lie in this one.
std::map<std::string, std::vector<std::string>> found_in(const std::string& folder) {
  std::map<std::string, std::vector<std::string>> out;
  std::error_code wrong;
  for (fs::recursive_directory_iterator at(folder, wrong), end; !wrong && at != end; at.increment(wrong)) {
    if (at->path().filename().string()[0] == '.') {
      at.disable_recursion_pending();
      continue;
    }
    if (!is_picture(at->path())) continue;
    const fs::path below = at->path().lexically_relative(folder);
    out[at.depth() == 0 ? "" : below.begin()->string()].push_back(at->path().string());
  }
  if (wrong) throw_invalid(fmt::format("[pictures] {}: cannot be read: {}", folder, wrong.message()));
  if (out.empty()) throw_invalid(fmt::format("[pictures] {}: has no *.png, *.jpg or *.jpeg", folder));
  if (out.contains("") && out.size() > 1)
    throw_invalid(
        fmt::format("[pictures] {}: {} lies beside folders of pictures, which are classes: move it into "
                    "one, or name another folder",
                    folder, out[""].front()));
  for (auto& [name, files] : out) std::ranges::sort(files);
  return out;
}

class Pictures final : public Source {
 public:
  Pictures(const std::string& folder, PictureOptions options) : options_(options) {
    for (auto& [name, files] : found_in(folder)) {
      if (!name.empty()) ends_.push_back(size() + std::ssize(files));
      files_.insert(files_.end(), files.begin(), files.end());
    }
  }
  int64_t size() const override { return std::ssize(files_); }
  Sample read(int64_t number) const override {
    Sample out{{"x", read_picture(files_[static_cast<size_t>(number)], options_)}};
    if (!ends_.empty()) out["y"] = int64_t{std::ranges::upper_bound(ends_, number) - ends_.begin()};
    return out;
  }

 private:
  const PictureOptions options_;
  std::vector<std::string> files_;
  std::vector<int64_t> ends_;  // numbers of pictures up to each class's end
};

}  // namespace

SourcePtr pictures(const std::string& folder, const PictureOptions& options) {
  return std::make_shared<const Pictures>(folder, options);
}

std::vector<std::string> picture_classes(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& [name, files] : found_in(folder))
    if (!name.empty()) out.push_back(name);
  return out;
}

}  // namespace troupe::datasets
