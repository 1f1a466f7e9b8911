// Reading: every byte that is taken has been compared with its CRC-32. Writing: checkpoint_folder.cpp.
#include "data/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "core/tensor/creation.h"
#include "data/checkpoint_names.h"
#include "data/crc32.h"
#include "data/file.h"
#include "data/safetensors.h"
#include "data/safetensors_writer.h"

namespace troupe::datasets {
namespace fs = std::filesystem;
namespace {

constexpr const char* kVersionKey = "DCP_VERSION";
constexpr const char* kPiecesKey = "DCP_SHARDING_INFO";  // as text: {name: {"saved_offsets": [0, 128]}}
constexpr const char* kOffsetsKey = "saved_offsets";

std::string where_of(const fs::path& path) { return fmt::format("[{}] {}: ", kCheckpointTag, path.string()); }

// A link may lead out of the folder.
void refuse_link(const fs::path& path) {
  std::error_code none;
  if (fs::is_symlink(fs::symlink_status(path, none)))
    throw_invalid(where_of(path) + "is a symbolic link, expected a file of the checkpoint's own");
}

void check_offsets(const std::string& where, const std::string& name, const Shape& piece,
                   const Shape& offsets) {
  bool fit = offsets.rank() == piece.rank();
  for (int i = 0; fit && i < piece.rank(); ++i) fit = offsets[i] >= 0 && offsets[i] <= INT64_MAX - piece[i];
  if (!fit)
    throw_invalid(
        fmt::format("{}the piece {} of {} begins at {}, expected a number from 0 for each dimension", where,
                    piece.str(), in_quotes(name, 80), offsets.str()));
}

PieceOffsets pieces_in(const std::map<std::string, std::string>& metadata, const std::string& where) {
  const auto text = metadata.find(kPiecesKey);
  if (text == metadata.end()) return {};
  PieceOffsets out;
  try {
    const auto json = nlohmann::json::parse(text->second);
    for (const auto& [name, piece] : json.items())
      out[name] = Shape(piece.at(kOffsetsKey).get<std::vector<int64_t>>());
  } catch (const std::exception&) {  // no JSON, other members, too many numbers
    throw_invalid(fmt::format("{}{} says of its pieces {}, expected {{name: {{\"{}\": [numbers]}}}}", where,
                              kPiecesKey, in_quotes(text->second, 80), kOffsetsKey));
  }
  return out;
}

// Copies a piece to where it belongs in the whole; row by row of its last dimension.
void place(const Tensor& whole, const Tensor& piece, const Shape& offsets) {
  const Shape &size = piece.shape(), steps = whole.shape().contiguous_strides();
  if (piece.numel() == 0) return;
  const size_t item = item_size(piece.dtype());
  const size_t row = item * static_cast<size_t>(size.empty() ? 1 : size.back());
  Shape at = Shape::filled(size.rank(), 0);
  for (size_t done = 0; done < piece.nbytes(); done += row) {
    int64_t to = 0;
    for (int i = 0; i < size.rank(); ++i) to += (offsets[i] + at[i]) * steps[i];
    std::memcpy(whole.bytes() + static_cast<size_t>(to) * item, piece.bytes() + done, row);
    for (int i = size.rank() - 2; i >= 0 && ++at[i] == size[i]; --i) at[i] = 0;
  }
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
  if (!pieces.empty()) {
    nlohmann::json info = nlohmann::json::object();
    for (const auto& [tensor, offsets] : pieces) {
      const auto at = tensors.find(tensor);
      if (at == tensors.end())
        throw_invalid(
            fmt::format("{}there is no tensor {} for a piece", where_of(path), in_quotes(tensor, 80)));
      check_offsets(where_of(path), tensor, at->second.shape(), offsets);
      info[tensor] = {{kOffsetsKey, std::vector<int64_t>(offsets.begin(), offsets.end())}};
    }
    metadata[kVersionKey] = "1.0";
    metadata[kPiecesKey] = info.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
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
    opened.resize(index.files.size());
  }

  struct Opened {
    explicit Opened(const std::string& path)
        : tensors(path), pieces(pieces_in(tensors.metadata(), where_of(path))) {}
    Safetensors tensors;
    PieceOffsets pieces;
  };

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
  mutable std::mutex mutex;
  mutable std::vector<std::shared_ptr<const Opened>> opened;
};

Checkpoint::Checkpoint(const std::string& folder) : parts_(std::make_shared<const Parts>(folder)) {}

const CheckpointIndex& Checkpoint::index() const& { return parts_->index; }
CheckpointIndex Checkpoint::index() && { return parts_->index; }

namespace {

struct Piece {
  std::string where;  // its file
  Tensor part;
  Shape offsets;
};

bool overlap(const Piece& a, const Piece& b) {
  for (int i = 0; i < a.offsets.rank(); ++i)
    if (a.offsets[i] + a.part.shape()[i] <= b.offsets[i] || b.offsets[i] + b.part.shape()[i] <= a.offsets[i])
      return false;
  return true;
}

// Pieces cover the whole when their elements are as many as its own and no two overlap.
Tensor put_together(const std::string& name, const std::vector<Piece>& pieces) {
  const auto refuse = [&](const Piece& piece, const std::string& what) {
    throw_invalid(fmt::format("{}the piece {} of {} at {} {}", piece.where, piece.part.summary(),
                              in_quotes(name, 80), piece.offsets.str(), what));
  };
  const Piece& first = pieces.front();
  Shape size = Shape::filled(first.offsets.rank(), 0);
  uint64_t held = 0;
  for (const Piece& p : pieces) {
    if (p.part.dtype() != first.part.dtype() || p.offsets.rank() != size.rank())
      refuse(p, fmt::format("is of another type or number of dimensions than that of {}", first.where));
    for (int i = 0; i < size.rank(); ++i) size[i] = std::max(size[i], p.offsets[i] + p.part.shape()[i]);
    held += static_cast<uint64_t>(p.part.numel());
  }
  uint64_t elements = 1;
  bool fits = true;
  for (const int64_t n : size) fits &= !__builtin_mul_overflow(elements, static_cast<uint64_t>(n), &elements);
  if (!fits || elements != held)
    refuse(first,
           fmt::format("and the others hold {} elements of a tensor {}: pieces are missing, or are there "
                       "twice",
                       held, size.str()));
  for (size_t i = 0; i < pieces.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (pieces[i].part.numel() > 0 && pieces[j].part.numel() > 0 && overlap(pieces[i], pieces[j]))
        refuse(pieces[i], fmt::format("overlaps that of {}", pieces[j].where));
  const Tensor whole = empty(size, first.part.dtype());
  for (const Piece& p : pieces) place(whole, p.part, p.offsets);
  return whole;
}

}  // namespace

NamedTensors Checkpoint::tensors(const std::string& prefix, bool model) const {
  NamedTensors out;
  std::map<std::string, std::vector<Piece>> pieces;
  std::map<std::string, std::string> from;  // the files of whole tensors
  for (size_t i = 0; i < parts_->index.files.size(); ++i) {
    const CheckpointFile& file = parts_->index.files[i];
    if (file.model != model) continue;
    const std::string where = where_of(parts_->path_of(file));
    for (auto at = file.tensors.lower_bound(prefix);
         at != file.tensors.end() && at->first.starts_with(prefix); ++at) {
      const std::string& name = at->first;
      const Tensor part = parts_->verified(i, name, at->second);
      const auto& offsets = parts_->open(i).pieces;
      if (const auto piece = offsets.find(name); piece != offsets.end()) {
        check_offsets(where, name, part.shape(), piece->second);
        pieces[name].push_back({where, part, piece->second});
      } else {
        out[name.substr(prefix.size())] = part;
        if (const auto [other, is_new] = from.emplace(name, file.name); !is_new)
          throw_invalid(fmt::format("{}has {}, as {} has, expected one of them to have it, or each a piece",
                                    where, in_quotes(name, 80), other->second));
      }
      if (from.contains(name) && pieces.contains(name))
        throw_invalid(fmt::format("{}has {} whole or in a piece, and another file the other way", where,
                                  in_quotes(name, 80)));
    }
  }
  for (const auto& [name, parts] : pieces) out[name.substr(prefix.size())] = put_together(name, parts);
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
