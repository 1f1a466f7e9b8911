#include "parallel/tensor/owned_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/parameter_pieces.h"
#include "core/tensor/creation.h"
#include "data/checkpoint/assembly.h"

namespace troupe::parallel {

std::vector<int64_t> OwnedPiece::numbers() const {
  std::vector<int64_t> out{whole.rank()};
  out.insert(out.end(), whole.begin(), whole.end());
  out.insert(out.end(), {dim, flat, from, count});
  for (const auto& r : ranges) out.insert(out.end(), {r.from, r.size});
  return out;
}

OwnedPiece OwnedPiece::of_numbers(const std::vector<int64_t>& numbers, const std::string& what) {
  const auto wrong = [&] { throw_invalid(what + " is none of a piece"); };
  size_t at = 0;
  const auto next = [&] {
    if (at == numbers.size()) wrong();
    return numbers[at++];
  };
  const int64_t rank = next();
  if (rank < 0 || rank > static_cast<int64_t>(numbers.size())) wrong();
  OwnedPiece p;
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(next());
  p.whole = Shape(shape);
  p.dim = next(), p.flat = next() != 0, p.from = next(), p.count = next();
  while (at < numbers.size()) {
    const int64_t from = next(), size = next();
    p.ranges.push_back({from, size});
    if (p.dim < 0 || p.dim >= rank || from < 0 || size < 0 || from > shape[static_cast<size_t>(p.dim)] - size)
      wrong();
  }
  if (std::ranges::any_of(shape, [](int64_t n) { return n < 0; })) wrong();
  if (p.from < 0 || p.count < 0 || p.from > p.local().numel() - p.count) wrong();
  return p;
}

Shape OwnedPiece::local() const {
  Shape shape = whole;
  if (ranges.empty()) return shape;
  int64_t size = 0;
  for (const auto& r : ranges) size += r.size;
  shape[static_cast<int>(dim)] = size;
  return shape;
}

void OwnedPiece::for_each_run(const std::function<void(int64_t, int64_t, int64_t)>& f) const {
  const int64_t end = from + count;
  if (ranges.empty()) {
    if (count > 0) f(from, 0, count);
    return;
  }
  int64_t outer = 1, inner = 1, at = 0;
  for (int i = 0; i < whole.rank(); ++i) (i < dim ? outer : inner) *= i == dim ? 1 : whole[i];
  for (int64_t o = 0; o < outer; ++o)
    for (const auto& r : ranges) {
      const int64_t a = std::max(at, from), b = std::min(at + r.size * inner, end);
      if (a < b) f((o * whole[static_cast<int>(dim)] + r.from) * inner + a - at, a - from, b - a);
      at += r.size * inner;
    }
}

Tensor OwnedPiece::cut(const Tensor& of_whole) const {
  using datasets::detail::at_element;
  const Tensor out = empty(flat ? Shape{count} : local(), of_whole.dtype());
  for_each_run([&](int64_t in_whole, int64_t here, int64_t n) {
    std::memcpy(at_element(out, here), at_element(of_whole, in_whole),
                static_cast<size_t>(n) * item_size(of_whole.dtype()));
  });
  return out;
}

OwnedPieces pieces_of(Actor& actor) {
  OwnedPieces out;
  const nn::HeldModule held(actor);
  if (!held) return out;
  for (const auto& [name, p] : tp::placements_of(*held.get())) {
    OwnedPiece piece{p.whole, p.dim, p.ranges, false, 0, 0};
    piece.count = piece.local().numel();
    out[name] = std::move(piece);
  }
  for (const auto& some : optim::pieces_here())
    for (const auto& p : some->pieces()) {
      std::vector<std::string> names = p.names;  // also where the actor has no element of it
      for (const auto& [name, t] : held->named_parameters())
        if (p.whole.defined() && p.whole.is_same(t)) names.push_back(name);
      for (const std::string& name : names) {
        OwnedPiece& piece = out.try_emplace(name, OwnedPiece::all_of(p.shape)).first->second;
        piece.flat = true, piece.from = p.from, piece.count = p.piece.defined() ? p.piece.numel() : 0;
      }
    }
  return out;
}

OwnedPiece fitted(const OwnedPieces& pieces, const std::string& parameter, const Shape& shape,
                  const std::string& what) {
  const auto at = pieces.find(parameter);
  if (shape.empty() || at == pieces.end()) return OwnedPiece::all_of(shape);
  OwnedPiece p = at->second;
  if (shape == p.local()) {
    p.flat = false, p.from = 0, p.count = shape.numel();
    return p;
  }
  if (p.flat && shape == Shape{p.count}) return p;
  throw_invalid(fmt::format("{} is {}, expected {}, or a piece of {} elements", what, shape.str(),
                            p.local().str(), p.count));
}

}  // namespace troupe::parallel
