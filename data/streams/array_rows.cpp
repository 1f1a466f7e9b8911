#include "data/streams/array_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "data/formats/npy.h"
#include "data/formats/safetensors_header.h"
#include "data/formats/unchanged_file.h"
#include "data/streams/files.h"

namespace troupe::datasets {
namespace {

struct NpyFile {
  NpyArray array;
  std::string field;
  int64_t size() const { return array.rows(); }
  Sample read(int64_t number) const { return {{field, array.row(number)}}; }
};

// The type that detail::elements_of() gives for one of the format.
std::string_view read_as(std::string_view dtype) {
  for (const std::string_view narrow : {"I8", "I16", "U16", "U32"})
    if (dtype == narrow) return "I64";
  return dtype;
}

struct SafetensorsRows {
  struct Column {
    SafetensorsEntry entry;
    Shape row;
    size_t row_bytes;
  };
  std::shared_ptr<const UnchangedFile> file;
  std::vector<Column> columns;
  int64_t rows = 0;

  explicit SafetensorsRows(const std::string& path)
      : file(std::make_shared<const UnchangedFile>(path, "safetensors", "a safetensors file")) {
    std::string head;
    const auto first = [&](size_t count) -> std::string_view {
      head.resize(count);
      file->read(0, std::as_writable_bytes(std::span(head)));
      return head;
    };
    const auto header = detail::read_safetensors_header(file->size(), first, "[safetensors] " + path + ": ");
    for (const SafetensorsEntry& e : header.entries) {
      if (e.shape.rank() == 0)
        throw_invalid(
            fmt::format("[safetensors] {}: tensor \"{}\" has no dimension, expected rows", path, e.name));
      if (columns.empty()) rows = e.shape[0];
      if (e.shape[0] != rows)
        throw_invalid(
            fmt::format("[safetensors] {}: tensor \"{}\" has {} rows, and \"{}\" has {}: expected as "
                        "many of each",
                        path, columns.front().entry.name, rows, e.name, e.shape[0]));
      const size_t bytes = rows ? (e.end - e.begin) / static_cast<size_t>(rows) : 0;
      columns.push_back({e, Shape(std::span(e.shape.begin() + 1, e.shape.end())), bytes});
    }
  }
  int64_t size() const { return rows; }
  Sample read(int64_t number) const {
    Sample out;
    for (const Column& c : columns) {
      std::vector<std::byte> bytes(c.row_bytes);
      file->read(c.entry.begin + static_cast<size_t>(number) * c.row_bytes, bytes);
      out.emplace(c.entry.name, detail::elements_of(bytes, c.entry.dtype, c.row,
                                                    fmt::format("[safetensors] {}: row {} of tensor \"{}\"",
                                                                file->path(), number, c.entry.name)));
    }
    return out;
  }
  // Names, types and shapes of rows, in the order of the names.
  std::string kind() const {
    std::vector<std::string> all;
    for (const Column& c : columns)
      all.push_back(fmt::format("{} {} {}", c.entry.name, read_as(c.entry.dtype), c.row.str()));
    std::ranges::sort(all);
    return fmt::format("{}", fmt::join(all, ", "));
  }
};

class SideBySide final : public Source {
 public:
  explicit SideBySide(std::vector<SourcePtr> sources) : sources_(std::move(sources)) {
    for (const SourcePtr& s : sources_)
      if (!s || s->size() != sources_.front()->size())
        throw_invalid(
            fmt::format("[stream] sources side by side have {} and {} samples, expected as many of each",
                        sources_.front()->size(), s ? s->size() : 0));
    if (sources_.empty()) throw_invalid("[stream] no source side by side");
  }
  int64_t size() const override { return sources_.front()->size(); }
  Sample read(int64_t number) const override {
    Sample out;
    for (const SourcePtr& s : sources_)
      for (auto& [name, value] : s->read(number))
        if (!out.emplace(name, value).second)
          throw_invalid(fmt::format("[stream] two of the sources side by side have the field \"{}\"", name));
    return out;
  }

 private:
  const std::vector<SourcePtr> sources_;
};

// `files` and `kinds` go together.
SourcePtr alike(const char* tag, const std::vector<std::string>& files, const std::vector<std::string>& kinds,
                SourcePtr source) {
  for (size_t i = 1; i < files.size(); ++i)
    if (kinds[i] != kinds[0])
      throw_invalid(fmt::format("[{}] {}: its rows are {}, and those of {} are {}", tag, files[i], kinds[i],
                                files[0], kinds[0]));
  if (source->size() == 0) throw_invalid(fmt::format("[{}] {}: there is no row in it", tag, files[0]));
  return source;
}

}  // namespace

SourcePtr npy_rows(const std::vector<std::string>& files, const std::string& field) {
  const auto paths = detail::files_of(files, "npy", {".npy"});
  std::vector<NpyFile> all;
  std::vector<std::string> kinds;
  for (const std::string& path : paths) {
    all.push_back({NpyArray(path), field});
    kinds.push_back(all.back().array.kind());
  }
  return alike("npy", paths, kinds, detail::samples_of(std::move(all)));
}

SourcePtr safetensors_rows(const std::vector<std::string>& files) {
  const auto paths = detail::files_of(files, "safetensors", {".safetensors"});
  std::vector<SafetensorsRows> all;
  std::vector<std::string> kinds;
  for (const std::string& path : paths) {
    all.emplace_back(path);
    kinds.push_back(all.back().kind());
  }
  return alike("safetensors", paths, kinds, detail::samples_of(std::move(all)));
}

SourcePtr side_by_side(const std::vector<SourcePtr>& sources) {
  return std::make_shared<const SideBySide>(sources);
}

}  // namespace troupe::datasets
