// Samples of several files as those of one.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "data/streams/source.h"

namespace troupe::datasets::detail {

/// The files that a user names, of which a folder stands for those in it that end with one of `endings`, in
/// the order of their names. `invalid`: none was named, or a folder has none.
std::vector<std::string> files_of(const std::vector<std::string>& paths, const char* tag,
                                  const std::vector<std::string>& endings);

/// One behind the other. File has size() and read(number), as a Source.
template <class File>
class Files final : public Source {
 public:
  explicit Files(std::vector<File> files) : files_(std::move(files)) {
    for (const File& f : files_) {
      int64_t end = 0;
      if (__builtin_add_overflow(size(), f.size(), &end))
        throw_invalid("[stream] the files have more rows together than can be counted");
      ends_.push_back(end);
    }
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Sample read(int64_t number) const override {
    const auto at = static_cast<size_t>(std::ranges::upper_bound(ends_, number) - ends_.begin());
    return files_[at].read(number - (at ? ends_[at - 1] : 0));
  }

 private:
  std::vector<File> files_;
  std::vector<int64_t> ends_;
};

template <class File>
SourcePtr samples_of(std::vector<File> files) {
  return std::make_shared<const Files<File>>(std::move(files));
}

}  // namespace troupe::datasets::detail
