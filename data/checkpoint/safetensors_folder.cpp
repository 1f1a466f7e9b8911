// A model that other programs wrote as a folder of files.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/shown.h"
#include "core/base/visible.h"
#include "data/checkpoint/checkpoint_files.h"
#include "data/checkpoint/checkpoint_names.h"
#include "data/checkpoint/pieces.h"
#include "data/formats/file.h"
#include "data/formats/safetensors.h"

namespace troupe::datasets {
namespace fs = std::filesystem;
namespace {

std::string start_of_error(const fs::path& path) { return fmt::format("[safetensors] {}: ", path.string()); }

struct OpenedFile {
  explicit OpenedFile(const fs::path& path)
      : where(start_of_error(path)),
        tensors(path.string()),
        pieces(detail::pieces_in(tensors.metadata(), where)) {}
  std::string where;
  Safetensors tensors;
  PieceOffsets pieces;
};

std::vector<fs::path> safetensors_in(const std::string& folder) {
  std::vector<fs::path> out;
  std::error_code why;
  for (fs::directory_iterator at(folder, why), end; !why && at != end; at.increment(why))
    if (at->path().extension() == ".safetensors" && !at->path().filename().string().starts_with('.'))
      out.push_back(at->path());  // ._model.safetensors is of macOS
  if (why) throw_invalid(start_of_error(folder) + "cannot be listed: " + why.message());
  if (out.empty()) throw_invalid(start_of_error(folder) + "has no *.safetensors and no " + kCheckpointIndex);
  std::ranges::sort(out);
  return out;
}

NamedTensors read_all(const std::string& folder) {
  detail::Gathered all;
  const fs::path path = fs::path(folder) / kCheckpointIndex;
  std::error_code none;
  if (!fs::exists(path, none)) {
    for (const fs::path& file : safetensors_in(folder)) {
      const OpenedFile in(file);
      for (const auto& entry : in.tensors.entries())
        all.add(in.where, entry.name, in.tensors.tensor(entry.name), in.pieces);
    }
    return std::move(all).whole();
  }
  const auto index = MappedFile::open(path.string(), "safetensors", "an index");
  const auto files = parse_weight_map(index->text(), start_of_error(path));
  if (!files) return Checkpoint(folder).tensors("", true);
  std::map<std::string, OpenedFile> opened;
  for (const auto& [name, file] : *files) {
    auto at = opened.find(file);
    if (at == opened.end()) at = opened.emplace(file, fs::path(folder) / file).first;
    const OpenedFile& in = at->second;
    if (!in.tensors.contains(name))
      throw_invalid(fmt::format("{}has no tensor {}, and {} says that it is there", in.where,
                                in_quotes(name, 80), kCheckpointIndex));
    all.add(in.where, name, in.tensors.tensor(name), in.pieces);
  }
  return std::move(all).whole();
}

}  // namespace

NamedTensors read_safetensors_folder(const std::string& folder) {
  refuse_nul("[safetensors]", folder);
  NamedTensors all = read_all(folder);
  if (!all.empty()) return all;
  std::error_code none;
  const bool index = fs::exists(fs::path(folder) / kCheckpointIndex, none);
  throw_invalid(start_of_error(folder) + "expected the tensors of a model, but " +
                (index ? std::string(kCheckpointIndex) + " names none" : "its files hold none"));
}

}  // namespace troupe::datasets
