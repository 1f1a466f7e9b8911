#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "data/formats/file.h"
#include "data/formats/json.h"
#include "data/streams/source.h"

namespace troupe::datasets {
namespace {

constexpr int64_t kStride = 64;

// The line that begins at `from`, and where the next one does.
std::string_view line_at(std::string_view text, size_t from, size_t& next) {
  const size_t end = std::min(text.find('\n', from), text.size());
  next = std::min(end + 1, text.size());
  std::string_view line = text.substr(from, end - from);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_empty(std::string_view line) { return line.find_first_not_of(" \t") == std::string_view::npos; }

struct Lines {
  std::string path;
  std::shared_ptr<const MappedFile> file;
  std::vector<std::pair<size_t, int64_t>> begins;  // of every 64th line that has something: byte, line number
  int64_t count = 0;

  explicit Lines(const std::string& where)
      : path(where), file(MappedFile::open(where, "json lines", "a file with a JSON object in each line")) {
    const std::string_view text = file->text();
    int64_t number = 1;
    for (size_t at = 0, next; at < text.size(); at = next, ++number) {
      const auto line = line_at(text, at, next);
      if (is_empty(line)) continue;
      if (count++ % kStride == 0) begins.emplace_back(at, number);
    }
    if (count == 0) throw_invalid("[json lines] " + path + " has no lines");
  }

  Sample read(int64_t index) const {
    auto [at, number] = begins[static_cast<size_t>(index / kStride)];
    const std::string_view text = file->text();
    std::string_view line;
    for (int64_t skip = index % kStride;; ++number) {
      size_t next = 0;
      line = line_at(text, at, next);
      at = next;
      if (!is_empty(line) && skip-- == 0) break;
    }
    Value value = read_json(line, fmt::format("[json lines] {}, line {}", path, number));
    if (auto* fields = value.get_if<ValueMap>()) return std::move(*fields);
    throw_invalid(fmt::format("[json lines] {}, line {}: has {}, expected an object, {{\"text\": ...}}", path,
                              number, value.describe()));
  }
};

class JsonLines final : public Source {
 public:
  explicit JsonLines(const std::vector<std::string>& files) {
    for (const std::string& path : files) {
      files_.emplace_back(path);
      ends_.push_back(size() + files_.back().count);
    }
    if (files_.empty()) throw_invalid("[json lines] no file was given");
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Sample read(int64_t number) const override {
    const auto at = static_cast<size_t>(std::ranges::upper_bound(ends_, number) - ends_.begin());
    return files_[at].read(number - (at ? ends_[at - 1] : 0));
  }

 private:
  std::vector<Lines> files_;
  std::vector<int64_t> ends_;
};

}  // namespace

SourcePtr json_lines(const std::vector<std::string>& files) {
  return std::make_shared<const JsonLines>(files);
}

}  // namespace troupe::datasets
