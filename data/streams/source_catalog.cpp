#include "data/streams/source_catalog.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/streams/array_rows.h"
#include "data/streams/csv_rows.h"
#include "data/streams/pictures.h"
#include "data/streams/tar_samples.h"

namespace troupe::datasets {
namespace {

using internal::with;
using Paths = std::vector<std::string>;
using Sources = std::vector<Maker<SourcePtr>>;

PictureOptions picture_options(int64_t height, int64_t width, int64_t channels, DType dtype) {
  return {.height = height, .width = width, .channels = channels, .dtype = dtype};
}

void add_pictures(Sources& t) {
  t.push_back(maker<SourcePtr>(
      "tar_samples",
      [](Paths files, int64_t height, int64_t width, int64_t channels, DType dtype, bool decode) {
        return tar_samples(files,
                           {.pictures = picture_options(height, width, channels, dtype), .decode = decode});
      },
      {{"files"},
       with("height", int64_t{0}),
       with("width", int64_t{0}),
       with("channels", int64_t{3}),
       with("dtype", float32),
       with("decode", true)},
      "Samples of tar archives as WebDataset has them; sizes and dtype are those of pictures."));
  t.push_back(maker<SourcePtr>(
      "pictures",
      [](std::string folder, int64_t height, int64_t width, int64_t channels, DType dtype) {
        return pictures(folder, picture_options(height, width, channels, dtype));
      },
      {{"folder"},
       with("height", int64_t{0}),
       with("width", int64_t{0}),
       with("channels", int64_t{3}),
       with("dtype", float32)},
      "PNG and JPEG files of a folder as x [channels, height, width], resized; its folders are classes, y."));
}

Sources make_sources() {
  Sources t;
  t.push_back(maker<SourcePtr>(
      "token_windows",
      [](Paths files, int64_t context, int64_t bytes) {
        return token_windows(files, {.context = context, .bytes = static_cast<int>(bytes)});
      },
      {{"files"}, with("context", int64_t{1024}), with("bytes", int64_t{2})},
      "Windows of files of token ids (uint16 or uint32), side by side: x, ids, and y, those that follow."));
  t.push_back(maker<SourcePtr>(
      "json_lines", [](Paths files) { return json_lines(files); }, {{"files"}},
      "The lines of files of JSON objects, a sample each; the files may be gzip or zstd data."));
  t.push_back(maker<SourcePtr>(
      "csv_rows",
      [](Paths files, Paths columns, std::map<std::string, std::string> types, std::string separator,
         bool header) {
        if (separator.size() != 1)
          throw_invalid("[data] csv_rows: separator must be one byte, got \"" + separator + "\"");
        return csv_rows(files, {.separator = separator[0],
                                .header = header,
                                .columns = std::move(columns),
                                .types = std::move(types)});
      },
      {{"files"},
       with("columns", Paths()),
       with("types", std::map<std::string, std::string>()),
       with("separator", std::string(",")),
       with("header", true)},
      "Rows of CSV files, fields by column; types (int64, float64, text) are found out unless given."));
  t.push_back(maker<SourcePtr>(
      "npy_rows", [](Paths files, std::string field) { return npy_rows(files, field); },
      {{"files"}, with("field", std::string("x"))}, "Rows of NPY files, or of those in a folder."));
  t.push_back(maker<SourcePtr>(
      "safetensors_rows", [](Paths files) { return safetensors_rows(files); }, {{"files"}},
      "Rows of the tensors of safetensors files, or of those in a folder, fields by the tensors' names."));
  add_pictures(t);
  return t;
}

}  // namespace

std::span<const Maker<SourcePtr>> sources() {
  static const Sources all = make_sources();
  return all;
}

const Maker<SourcePtr>* find_source(std::string_view name) {
  const auto all = sources();
  const auto at = std::ranges::find_if(all, [&](const auto& s) { return s.name == name; });
  return at == all.end() ? nullptr : &*at;
}

ValueMap description_of(std::string_view name, ValueList positional, ValueMap named) {
  const auto* source = find_source(name);
  if (!source) throw_invalid("[data] no source is called \"" + std::string(name) + "\"");
  const Parameter& first = source->parameters.front();
  Value* paths = nullptr;
  if (!positional.empty())
    paths = &positional.front();
  else if (const auto at = named.find(first.name); at != named.end())
    paths = &at->second;
  if (paths && paths->get_if<std::string>() && first.type.starts_with("list"))
    *paths = ValueList{std::move(*paths)};
  ValueList all = complete(*source, std::move(positional), std::move(named));
  ValueMap out{{"kind", source->name}};
  for (size_t i = 0; i < all.size(); ++i) out.emplace(source->parameters[i].name, std::move(all[i]));
  return out;
}

}  // namespace troupe::datasets
