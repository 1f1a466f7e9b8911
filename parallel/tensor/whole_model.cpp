#include "parallel/tensor/whole_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "actors/worker/common_method.h"
#include "autograd/distributed/optim/held_module.h"
#include "core/async/future_combinators.h"
#include "core/tensor/creation.h"
#include "data/safetensors.h"
#include "data/safetensors_writer.h"
#include "ops/ops.h"
#include "parallel/tensor/placement.h"

namespace troupe::parallel {
namespace {

using internal::actors::CommonMethod;

// What an actor has of a parameter or a buffer.
struct Piece {
  std::string name;
  DType dtype = float32;
  std::vector<int64_t> shape;  // of the whole
  int64_t dim = 0;
  std::vector<std::pair<int64_t, int64_t>>
      ranges;  // begin and size along it, one behind the other; none: all
};

/// Driver to ranks: what each has of the model.
constexpr CommonMethod<std::vector<Piece>()> kPieces{"model.pieces"};
/// Driver to ranks: a copy of its piece of that name.
constexpr CommonMethod<Tensor(std::string name)> kPiece{"model.piece"};
/// Driver to ranks: takes its pieces from the file.
constexpr CommonMethod<void(std::string file)> kTake{"model.take", {.uncancellable = true}};

std::vector<Piece> pieces(Actor& actor, internal::actors::Invocation& call) {
  const nn::HeldModule held(actor, call);
  const auto placements = tp::placements_of(*held.get());
  std::vector<Piece> all;
  for (const auto& [name, tensor] : held->state_dict()) {
    const auto at = placements.find(name);
    const bool cut = at != placements.end();
    const Shape& shape = cut ? at->second.whole : tensor.shape();
    Piece piece{name, tensor.dtype(), {shape.begin(), shape.end()}, 0, {}};
    if (cut) {
      piece.dim = at->second.dim;
      for (const auto& r : at->second.ranges) piece.ranges.emplace_back(r.from, r.size);
    }
    all.push_back(std::move(piece));
  }
  return all;
}

Tensor piece_of(Actor& actor, internal::actors::Invocation& call, const std::string& name) {
  return nn::HeldModule(actor, call)->state_dict().at(name).data_on(cpu).clone_data();
}

void take(Actor& actor, internal::actors::Invocation& call, const std::string& file) {
  const nn::HeldModule held(actor, call);
  const datasets::Safetensors whole(file);
  std::map<std::string, Tensor> mine;
  for (const auto& [name, tensor] : held->state_dict()) mine[name] = whole.tensor(name);
  tp::load_whole_state(*held.get(), mine);
}

// A range of a dimension, and where it lies.
struct Source {
  int64_t from = 0, size = 0;
  AnyRef actor;
  int64_t at = 0;  // in the actor's piece
};

// Of all actors that have some of it.
struct Whole {
  DType dtype = float32;
  Shape shape;
  std::string first;  // who said so
  int64_t dim = 0;
  std::vector<Source> sources;  // without copies; one of them has all, unless it is cut
};

Shape shape_of(const Piece& piece) {
  Shape shape = Shape::filled(static_cast<int>(piece.shape.size()), 0);
  for (size_t i = 0; i < piece.shape.size(); ++i) shape[static_cast<int>(i)] = piece.shape[i];
  return shape;
}

void add(Whole& whole, const Piece& piece, const AnyRef& actor) {
  const Shape shape = shape_of(piece);
  if (whole.first.empty())
    whole = {piece.dtype, shape, actor.str(), piece.dim, {}};
  else if (whole.shape != shape || whole.dtype != piece.dtype || whole.dim != piece.dim)
    throw_invalid(fmt::format("[model] {} is {} {} for {}, and {} {} for {}: expected the same of all ranks",
                              piece.name, name(whole.dtype), whole.shape.str(), whole.first, name(piece.dtype),
                              shape.str(), actor.str()));
  int64_t at = 0;
  auto ranges = piece.ranges;
  if (ranges.empty()) ranges.emplace_back(0, shape.empty() ? 1 : shape[static_cast<int>(piece.dim)]);
  for (const auto& [from, size] : ranges) {
    const bool known = std::ranges::any_of(
        whole.sources, [&, f = from, s = size](const Source& o) { return o.from == f && o.size == s; });
    if (!known && size > 0) whole.sources.push_back({from, size, actor, at});
    at += size;
  }
}

// Every element once.
void check_complete(const std::string& name, Whole& whole) {
  std::ranges::sort(whole.sources, {}, &Source::from);
  int64_t next = 0;
  const int64_t size = whole.shape.empty() ? 1 : whole.shape[static_cast<int>(whole.dim)];
  for (const Source& s : whole.sources) {
    if (s.from < next)
      throw_invalid(
          fmt::format("[model] actors have {} cut in different ways: give those of one model", name));
    if (s.from > next) break;
    next += s.size;
  }
  if (next < size)
    throw_invalid(
        fmt::format("[model] of {}, {}, none of the actors has what lies behind {} along dimension {}: "
                    "give all ranks",
                    name, whole.shape.str(), next, whole.dim));
}

std::map<std::string, Whole> find_wholes(const std::vector<AnyRef>& actors) {
  if (actors.empty()) throw_invalid("[model] there are no actors");
  std::vector<Future<std::vector<Piece>>> asked;
  for (const AnyRef& actor : actors) asked.push_back(kPieces.ask(actor));
  const auto answers = all(asked).get();
  std::map<std::string, Whole> wholes;
  for (size_t i = 0; i < actors.size(); ++i)
    for (const Piece& piece : answers[i]) add(wholes[piece.name], piece, actors[i]);
  return wholes;
}

Tensor put_together(const std::string& name, const Whole& whole) {
  const NoGradGuard off;
  const auto fetch = [&](const AnyRef& actor) { return kPiece.ask(actor, name).get(); };
  if (whole.sources.size() == 1) {
    const Source& only = whole.sources[0];
    const Tensor piece = fetch(only.actor);
    return piece.shape() == whole.shape ? piece : ops::slice(piece, whole.dim, only.at, only.at + only.size);
  }
  const Tensor out = empty(whole.shape, whole.dtype);
  for (size_t i = 0; i < whole.sources.size(); ++i) {
    const AnyRef& actor = whole.sources[i].actor;
    const auto same = [&](const Source& s) { return s.actor == actor; };
    if (std::any_of(whole.sources.begin(), whole.sources.begin() + static_cast<ptrdiff_t>(i), same)) continue;
    const Tensor piece = fetch(actor);
    for (const Source& s : whole.sources)
      if (same(s))
        ops::slice(out, whole.dim, s.from, s.from + s.size)
            .copy_(ops::slice(piece, whole.dim, s.at, s.at + s.size));
  }
  return out;
}

}  // namespace

void gather_to(const std::vector<AnyRef>& actors, const std::string& file) {
  auto wholes = find_wholes(actors);
  std::map<std::string, datasets::detail::LaterTensor> tensors;
  for (auto& [name, whole] : wholes) {
    check_complete(name, whole);
    tensors[name] = {whole.dtype, whole.shape,
                     [&name = name, &whole = whole] { return put_together(name, whole); }};
  }
  datasets::detail::write_safetensors(file, tensors, {{"format", "pt"}},
                                      [](std::string_view, const void*, size_t) {});
}

void load_whole(const std::vector<AnyRef>& actors, const std::string& file) {
  const std::string path = std::filesystem::absolute(file).string();
  const datasets::Safetensors whole(path);
  const auto wholes = find_wholes(actors);
  for (const auto& [name, has] : wholes) {
    const auto at = std::ranges::find(whole.entries(), name, &datasets::SafetensorsEntry::name);
    if (at == whole.entries().end())
      throw_invalid(fmt::format("[model] {} has no {}, which {} has", path, name, has.first));
    if (at->shape != has.shape)
      throw_invalid(fmt::format("[model] {} is {} in {}, and {} for {}", name, at->shape.str(), path,
                                has.shape.str(), has.first));
  }
  for (const auto& entry : whole.entries())
    if (!wholes.contains(entry.name))
      throw_invalid(
          fmt::format("[model] {} has {}, which none of the {} actors has", path, entry.name, actors.size()));
  std::vector<Future<Value>> taken;
  for (const AnyRef& actor : actors) taken.push_back(kTake.ask(actor, path));
  all(taken).get();
}

void install_whole_models(internal::actors::Worker& worker) {
  using internal::actors::serve;
  serve<kPieces, pieces>(worker);
  serve<kPiece, piece_of>(worker);
  serve<kTake, take>(worker);
}

}  // namespace troupe::parallel
