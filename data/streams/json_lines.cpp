#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "data/formats/json.h"
#include "data/formats/unchanged_file.h"
#include "data/streams/files.h"

namespace troupe::datasets {
namespace {

constexpr int64_t kStride = 8;
constexpr size_t kChunk = size_t{1} << 20;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

struct Lines {
  int64_t size() const { return count; }
  std::shared_ptr<const UnchangedFile> file;
  std::vector<std::pair<size_t, int64_t>>
      begins;  // of every eighth line that has something: byte, line number
  int64_t count = 0;

  explicit Lines(const std::string& path)
      : file(UnchangedFile::unpacked(path, "json lines", "a file with a JSON object in each line")) {
    size_t begin = 0;
    int64_t number = 1;
    bool has_something = false;
    std::string chunk;
    for (size_t at = 0; at < file->size(); at += chunk.size()) {
      chunk = bytes(at, std::min(file->size(), at + kChunk));
      for (auto c = chunk.begin();;) {
        if (!has_something) {
          c = std::find_if_not(c, chunk.end(), is_blank);
          has_something = c != chunk.end() && *c != '\n';
          if (has_something && count++ % kStride == 0) begins.emplace_back(begin, number);
        }
        c = std::find(c, chunk.end(), '\n');
        if (c == chunk.end()) break;
        begin = at + static_cast<size_t>(++c - chunk.begin());
        ++number;
        has_something = false;
      }
    }
    if (count == 0) throw_invalid("[json lines] " + path + " has no lines");
  }

  std::string bytes(size_t from, size_t to) const {
    std::string all(to - from, '\0');
    file->read(from, std::as_writable_bytes(std::span(all)));
    return all;
  }

  Sample read(int64_t index) const {
    const auto group = static_cast<size_t>(index / kStride);
    auto [begin, number] = begins[group];
    const std::string text = bytes(begin, group + 1 < begins.size() ? begins[group + 1].first : file->size());
    std::string_view rest = text, line;
    for (int64_t skip = index % kStride;; ++number) {
      line = rest.substr(0, rest.find('\n'));
      if (!std::ranges::all_of(line, is_blank) && skip-- == 0) break;
      rest.remove_prefix(line.size() + 1);
    }
    const std::string where = fmt::format("[json lines] {}, line {}", file->path(), number);
    Value value = read_json(line, where + ": ");
    if (auto* fields = value.get_if<ValueMap>()) return std::move(*fields);
    throw_invalid(fmt::format("{}: has {}, expected an object, {{\"text\": ...}}", where, value.describe()));
  }
};

}  // namespace

SourcePtr json_lines(const std::vector<std::string>& files) {
  if (files.empty()) throw_invalid("[json lines] no file was given");
  std::vector<Lines> all;
  for (const std::string& path : files) all.emplace_back(path);
  return detail::samples_of(std::move(all));
}

}  // namespace troupe::datasets
