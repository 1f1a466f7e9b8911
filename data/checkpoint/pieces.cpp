#include "data/checkpoint/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "data/checkpoint/assembly.h"

namespace troupe::datasets::detail {
namespace {

constexpr const char* kVersionKey = "DCP_VERSION";
constexpr const char* kPiecesKey = "DCP_SHARDING_INFO";  // as text: {name: {"saved_offsets": [0, 128]}}
constexpr const char* kOffsetsKey = "saved_offsets";

// Calls f(place in the whole, place in the piece, elements) for each row of the last dimension.
template <class F>
void for_each_row(const Piece& piece, const Shape& whole, const F& f) {
  const Shape &size = piece.part.shape(), steps = whole.contiguous_strides();
  const int64_t row = size.empty() ? 1 : size.back();
  Shape at = Shape::filled(size.rank(), 0);
  for (int64_t done = 0; done < piece.part.numel(); done += row) {
    int64_t to = 0;
    for (int i = 0; i < size.rank(); ++i) to += (piece.offsets[i] + at[i]) * steps[i];
    f(to, done, row);
    for (int i = size.rank() - 2; i >= 0 && ++at[i] == size[i]; --i) at[i] = 0;
  }
}

// The size is that of the furthest piece.
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
  const auto refuse_missing = [&] {
    refuse(first, fmt::format("and the others hold {} elements of a tensor {}: pieces are missing", held,
                              size.str()));
  };
  if (!fits || elements > held) refuse_missing();  // and take no memory
  Assembly all(first.part.dtype(), size);
  for (const Piece& p : pieces)
    for_each_row(p, size, [&](int64_t to, int64_t from, int64_t count) {
      if (!all.add(p.part, to, from, count))
        refuse(p, "overlaps others before it, which have other elements there");
    });
  if (all.missing() > 0) refuse_missing();
  return std::move(all).whole();
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
