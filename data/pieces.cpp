#include "data/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "core/tensor/creation.h"

namespace troupe::datasets::detail {
namespace {

constexpr const char* kVersionKey = "DCP_VERSION";
constexpr const char* kPiecesKey = "DCP_SHARDING_INFO";  // as text: {name: {"saved_offsets": [0, 128]}}
constexpr const char* kOffsetsKey = "saved_offsets";

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

std::map<std::string, std::string> metadata_of(const PieceOffsets& pieces) {
  nlohmann::json info = nlohmann::json::object();
  for (const auto& [tensor, offsets] : pieces)
    info[tensor] = {{kOffsetsKey, std::vector<int64_t>(offsets.begin(), offsets.end())}};
  return {{kVersionKey, "1.0"},
          {kPiecesKey, info.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}};
}

void Gathered::add(const std::string& where, const std::string& name, const Tensor& part,
                   const PieceOffsets& pieces) {
  if (const auto piece = pieces.find(name); piece != pieces.end()) {
    check_offsets(where, name, part.shape(), piece->second);
    pieces_[name].push_back({where, part, piece->second});
  } else {
    whole_[name] = part;
    if (const auto [other, is_new] = from_.emplace(name, where); !is_new) {
      const std::string path = other->second.substr(0, other->second.rfind(": "));
      throw_invalid(fmt::format("{}has {}, as {} has, expected one of them to have it, or each a piece",
                                where, in_quotes(name, 80), path.substr(path.rfind('/') + 1)));
    }
  }
  if (from_.contains(name) && pieces_.contains(name))
    throw_invalid(fmt::format("{}has {} whole or in a piece, and another file the other way", where,
                              in_quotes(name, 80)));
}

NamedTensors Gathered::whole() && {
  for (const auto& [name, parts] : pieces_) whole_[name] = put_together(name, parts);
  return std::move(whole_);
}

}  // namespace troupe::datasets::detail
