// Reading: every byte that is taken has been compared with its CRC-32. Writing: checkpoint_folder.cpp.
#include "data/checkpoint/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/visible.h"
#include "core/tensor/creation.h"
#include "data/checkpoint/checkpoint_names.h"
#include "data/checkpoint/pieces.h"
#include "data/formats/crc32.h"
#include "data/formats/file.h"
#include "data/formats/safetensors.h"
#include "data/formats/safetensors_writer.h"

namespace troupe::datasets {
namespace fs = std::filesystem;
using detail::check_offsets;
using detail::pieces_in;
namespace {

std::string where_of(const fs::path& path) { return fmt::format("[{}] {}: ", kCheckpointTag, path.string()); }

// A link may lead out of the folder.
void refuse_link(const fs::path& path) {
  std::error_code none;
  if (fs::is_symlink(fs::symlink_status(path, none)))
    throw_invalid(where_of(path) + "is a symbolic link, expected a file of the checkpoint's own");
}

}  // namespace

CheckpointFile write_checkpoint_file(const std::string& folder, const std::string& name,
                                     const NamedTensors& tensors, bool model, const PieceOffsets& pieces) {
  const std::string path = (fs::path(folder) / name).string();
  if (name.find('/') != std::string::npos)
    throw_invalid(fmt::format("[{}] a file of a checkpoint is named {}, expected a name without folders",
                              kCheckpointTag, in_quotes(name, 80)));
  if (tensors.contains("")) throw_invalid(where_of(path) + "a tensor of a checkpoint has no name");
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  for (const auto& [tensor, offsets] : pieces) {
    const auto at = tensors.find(tensor);
    if (at == tensors.end())
      throw_invalid(
          fmt::format("{}there is no tensor {} for a piece", where_of(path), in_quotes(tensor, 80)));
    check_offsets(where_of(path), tensor, at->second.shape(), offsets);
  }
  if (!pieces.empty()) metadata.merge(detail::metadata_of(pieces));
  CheckpointFile out{name, 0, 0, 0, 0, model, {}};
  Crc32 whole, header;
  std::map<std::string, Crc32> parts;
  const auto note = [&](std::string_view tensor, const void* bytes, size_t count) {
    Crc32 part;
    part.add(bytes, count);
    (tensor.empty() ? header : parts[std::string(tensor)]).add(part);
    whole.add(part);
  };
  detail::write_safetensors(path, tensors, metadata, note, AtomicFile::Through::disk);
  out.bytes = whole.bytes, out.crc32 = whole.value;
  out.header_bytes = header.bytes, out.header_crc32 = header.value;
  for (const auto& [tensor, crc] : parts) out.tensors.emplace(tensor, crc.value);
  return out;
}

// The files of a checkpoint, opened when they are needed.
struct Checkpoint::Parts {
  explicit Parts(const fs::path& of) : folder(of) {
    const fs::path path = folder / kCheckpointIndex;
    refuse_link(path);
    const auto file = MappedFile::open(path.string(), kCheckpointTag, "an index");
    index = parse_checkpoint_index(file->text(), where_of(path));
    refuse_other_step(path);
    opened.resize(index.files.size());
  }

  struct Opened {
    explicit Opened(const std::string& path)
        : tensors(path), pieces(pieces_in(tensors.metadata(), where_of(path))) {}
    Safetensors tensors;
    PieceOffsets pieces;
  };

  // A folder that was given another name: training would leave out the steps between.
  void refuse_other_step(const fs::path& path) const {
    const fs::path named = fs::absolute(path).lexically_normal().parent_path();
    const auto step = step_of_checkpoint(named.filename().string());
    if (!step || *step == index.step) return;
    throw_invalid(
        fmt::format("{}is of step {}, and its folder is named for step {}: give the folder its name "
                    "back, {}, or move it away",
                    where_of(path), index.step, *step, checkpoint_name(index.step)));
  }

  fs::path path_of(const CheckpointFile& file) const { return folder / file.name; }

  std::shared_ptr<const MappedFile> mapped(const CheckpointFile& file) const {
    const fs::path path = path_of(file);
    refuse_link(path);
    auto bytes = MappedFile::open(path.string(), kCheckpointTag, "a file of a checkpoint");
    if (bytes->size() != file.bytes)
      throw_invalid(
          fmt::format("{}has {} bytes, but {} were written", where_of(path), bytes->size(), file.bytes));
    if (const uint32_t crc = crc32_of(bytes->data(), file.header_bytes); crc != file.header_crc32)
      throw_invalid(
          fmt::format("{}its header, the {} bytes from 0, is not as it was written: their CRC-32 is "
                      "{:08x}, the index says {:08x}",
                      where_of(path), file.header_bytes, crc, file.header_crc32));
    return bytes;
  }

  const Opened& open(size_t i) const {
    std::lock_guard lock(mutex);
    if (!opened[i]) {
      mapped(index.files[i]);
      opened[i] = std::make_shared<const Opened>(path_of(index.files[i]).string());
    }
    return *opened[i];
  }

  // As the index says it was written.
  Tensor verified(size_t i, const std::string& name, uint32_t expected) const {
    const Safetensors& file = open(i).tensors;
    const Tensor t = file.tensor(name);
    if (const uint32_t crc = crc32_of(t.bytes(), t.nbytes()); crc != expected) {
      const auto entry = std::ranges::find(file.entries(), name, &SafetensorsEntry::name);
      throw_invalid(fmt::format(
          "{}{}, the {} bytes from {}, is not as it was written: their CRC-32 is {:08x}, the "
          "index says {:08x}",
          where_of(path_of(index.files[i])), in_quotes(name, 80), t.nbytes(), entry->begin, crc, expected));
    }
    return t;
  }

  const fs::path folder;
  CheckpointIndex index;

 private:
  mutable internal::Mutex mutex;
  mutable std::vector<std::shared_ptr<const Opened>> opened;
};

Checkpoint::Checkpoint(const std::string& folder) : parts_(std::make_shared<const Parts>(folder)) {}

const CheckpointIndex& Checkpoint::index() const& { return parts_->index; }
CheckpointIndex Checkpoint::index() && { return parts_->index; }

NamedTensors Checkpoint::tensors(const std::string& prefix, bool model) const {
  detail::Gathered all;
  for (size_t i = 0; i < parts_->index.files.size(); ++i) {
    const CheckpointFile& file = parts_->index.files[i];
    if (file.model != model) continue;
    const std::string where = where_of(parts_->path_of(file));
    for (auto at = file.tensors.lower_bound(prefix);
         at != file.tensors.end() && at->first.starts_with(prefix); ++at) {
      const Tensor part = parts_->verified(i, at->first, at->second);
      all.add(where, at->first, part, parts_->open(i).pieces);
    }
  }
  NamedTensors out;
  for (auto& [name, t] : std::move(all).whole()) out.emplace(name.substr(prefix.size()), std::move(t));
  return out;
}

void Checkpoint::verify() const {
  for (size_t i = 0; i < parts_->index.files.size(); ++i) {
    const CheckpointFile& file = parts_->index.files[i];
    const auto bytes = parts_->mapped(file);
    if (const uint32_t crc = crc32_of(bytes->data(), bytes->size()); crc != file.crc32)
      throw_invalid(
          fmt::format("{}is not as it was written: the CRC-32 of its {} bytes is {:08x}, the index says "
                      "{:08x}",
                      where_of(parts_->path_of(file)), bytes->size(), crc, file.crc32));
    const auto& entries = parts_->open(i).tensors.entries();
    if (entries.size() != file.tensors.size() ||
        !std::ranges::all_of(entries, [&](const auto& e) { return file.tensors.contains(e.name); }))
      throw_invalid(
          fmt::format("{}holds other tensors than the index says", where_of(parts_->path_of(file))));
  }
}

}  // namespace troupe::datasets
