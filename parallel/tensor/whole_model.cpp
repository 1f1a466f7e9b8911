#include "parallel/tensor/whole_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "actors/cell/task.h"
#include "actors/worker/common_method.h"
#include "autograd/distributed/optim/first_values.h"
#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/model_part.h"
#include "autograd/distributed/optim/whole_tensor.h"
#include "core/async/future_combinators.h"
#include "data/formats/safetensors_writer.h"
#include "parallel/tensor/placement.h"
#include "parallel/tensor/whole_source.h"

namespace troupe::parallel {
namespace {

using internal::actors::CommonMethod;
using optim::Placement;

// A parameter or a buffer of which an actor has some.
struct Holding {
  std::string name;
  DType dtype = float32;
  std::vector<int64_t> placement;  // as numbers
  std::string first_name;          // of the names that the tensor has
};

/// Driver to ranks: what each has of the model.
constexpr CommonMethod<std::vector<Holding>()> kPieces{"model.pieces"};
/// Driver to ranks: a copy of its piece of that name.
constexpr CommonMethod<Tensor(std::string name)> kPiece{"model.piece"};
/// Driver to ranks: takes its pieces of what is there, from a file that `reader` reads (open_whole()).
constexpr CommonMethod<void(std::string file, std::string reader)> kTake{"model.take",
                                                                         {.uncancellable = true}};

const std::byte* elements_of(const Tensor& t) {
  return static_cast<const std::byte*>(t.storage()->data()) + t.storage_offset();
}

Task<std::vector<Holding>> pieces(Actor& actor, internal::actors::Invocation& call) {
  const Future<void> first = optim::first_values();
  co_await first;
  const nn::HeldModule held(actor, call);
  const optim::Placements owned = internal::parallel::placements_of(actor);
  std::vector<Holding> all;
  std::map<const std::byte*, std::string> first_names;  // by where the elements are
  for (const auto& [name, tensor] : held->state_dict()) {
    const std::string first =
        tensor.numel() ? first_names.emplace(elements_of(tensor), name).first->second : name;
    all.push_back({name, tensor.dtype(),
                   optim::fitted(owned, name, tensor.shape(), "[model] " + name).numbers(), first});
  }
  co_return all;
}

Tensor piece_of(Actor& actor, internal::actors::Invocation& call, const std::string& name) {
  return nn::HeldModule(actor, call)->state_dict().at(name).data_on(cpu).clone_data();
}

Task<void> take(Actor& actor, internal::actors::Invocation& call, std::string file, std::string reader) {
  const Future<void> first = optim::first_values();
  co_await first;
  const nn::HeldModule held(actor, call);
  const auto whole = open_whole(file, reader);
  const optim::Placements owned = internal::parallel::placements_of(actor);
  const auto state = held->state_dict();
  std::map<std::string, Tensor> mine;
  std::set<const std::byte*> given;  // where elements are that the file has by one of their names
  for (const auto& [name, tensor] : state) {
    const Placement piece = optim::fitted(owned, name, tensor.shape(), "[model] " + name);
    if (!whole->contains(name)) continue;
    given.insert(elements_of(tensor));
    const Tensor all = whole->tensor(name);
    if (all.shape() != piece.whole)
      throw_invalid(
          fmt::format("[model] {} is {} in {}, and {} here", name, all.summary(), file, piece.whole.str()));
    mine[name] = piece.is_all() ? all : piece.of(all);
  }
  for (const auto& [name, tensor] : state)  // what the file has by no name stays as it is
    if (!mine.contains(name) && !given.contains(elements_of(tensor))) mine[name] = tensor;
  held->load_state_dict(mine);
  optim::parameters_written();
}

// Of all actors that have some of it.
struct Whole {
  struct Source {
    AnyRef actor;
    Placement piece;
  };
  DType dtype = float32;
  Shape shape;
  std::string first_name;
  std::vector<Source> sources = {};
};
using Wholes = std::map<std::string, Whole>;

Wholes find_wholes(const std::vector<AnyRef>& actors) {
  if (actors.empty()) throw_invalid("[model] there are no actors");
  std::vector<Future<std::vector<Holding>>> asked;
  for (const AnyRef& actor : actors) asked.push_back(kPieces.ask(actor));
  const auto answers = all(asked).get();
  Wholes wholes;
  for (size_t i = 0; i < actors.size(); ++i)
    for (const Holding& own : answers[i]) {
      Placement piece =
          Placement::of_numbers(own.placement, "[model] what " + actors[i].str() + " has of " + own.name);
      Whole& whole =
          wholes.try_emplace(own.name, Whole{own.dtype, piece.whole, own.first_name}).first->second;
      if (whole.shape != piece.whole || whole.dtype != own.dtype)
        throw_invalid(
            fmt::format("[model] {} is {} {} for {}, and {} {} for {}: expected the same of all ranks",
                        own.name, name(whole.dtype), whole.shape.str(), whole.sources[0].actor.str(),
                        name(own.dtype), piece.whole.str(), actors[i].str()));
      whole.sources.push_back({actors[i], std::move(piece)});
    }
  return wholes;
}

// Leaves those sources that have what none before them has. `invalid` unless these have every element.
void leave_copies_out(const std::string& name, Whole& whole) {
  datasets::detail::Coverage there(whole.shape.numel());
  std::erase_if(whole.sources, [&](const Whole::Source& source) {
    const int64_t before = there.missing();
    source.piece.for_each_run(
        [&](int64_t to, int64_t, int64_t count) { there.add(to, count, [](int64_t, int64_t, bool) {}); });
    return there.missing() == before && whole.shape.numel() > 0;
  });
  if (there.missing() > 0)
    throw_invalid(fmt::format("[model] of {}, {}, none of the actors has {} elements: give all ranks", name,
                              whole.shape.str(), there.missing()));
}

Tensor put_together(const std::string& name, const Whole& whole) {
  optim::WholeTensor all("[model] " + name, "give those of one model");
  for (const auto& [actor, piece] : whole.sources) {
    const Tensor part = kPiece.ask(actor, name).get();
    if (part.shape() != piece.shape() || part.dtype() != whole.dtype)
      throw_invalid(
          fmt::format("[model] {} of {} is {}, and had {} elements before: nobody may change the model "
                      "while it is gathered",
                      name, actor.str(), part.summary(), piece.shape().numel()));
    all.add(actor.str(), part, piece);
  }
  return std::move(all).take();
}

}  // namespace

std::map<std::string, datasets::detail::LaterTensor> whole_tensors(const std::vector<AnyRef>& actors) {
  Wholes wholes = find_wholes(actors);
  std::map<std::string, datasets::detail::LaterTensor> tensors;
  for (auto& [name, whole] : wholes) {
    leave_copies_out(name, whole);
    tensors[name] = {whole.dtype, whole.shape, [name, whole] { return put_together(name, whole); }};
  }
  return tensors;
}

void gather_to(const std::vector<AnyRef>& actors, const std::string& file) {
  datasets::detail::write_safetensors(file, whole_tensors(actors), {{"format", "pt"}},
                                      [](std::string_view, const void*, size_t) {});
}

LoadReport load_whole(const std::vector<AnyRef>& actors, const std::string& file,
                      const LoadOptions& options) {
  const std::string path = std::filesystem::absolute(file).string();
  const auto whole = open_whole(path, options.reader);
  const Wholes wholes = find_wholes(actors);
  std::map<std::string, Shape> entries;
  for (auto& [name, shape] : whole->entries()) entries.emplace(name, shape);
  std::set<std::string> given;  // first names of tensors that the file has by one of them
  for (const auto& [name, has] : wholes)
    if (entries.contains(name)) given.insert(has.first_name);
  LoadReport report;
  for (const auto& [name, has] : wholes) {
    const auto at = entries.find(name);
    if (at == entries.end() && given.contains(has.first_name)) continue;
    if (at == entries.end() && options.may_lack && options.may_lack(name)) continue;
    if (at == entries.end())
      report.missing.push_back(name);
    else if (at->second != has.shape)
      throw_invalid(fmt::format("[model] {} is {} in {}, and {} for {}", name, at->second.str(), path,
                                has.shape.str(), has.sources[0].actor.str()));
  }
  for (const auto& [name, shape] : entries)
    if (!wholes.contains(name)) report.unexpected.push_back(name);
  if (options.strict && !report.missing.empty())
    throw_invalid(fmt::format("[model] {} has no {}, which {} has", path, report.missing[0],
                              wholes.at(report.missing[0]).sources[0].actor.str()));
  if (options.strict && !report.unexpected.empty())
    throw_invalid(fmt::format("[model] {} has {}, which none of the {} actors has", path,
                              report.unexpected[0], actors.size()));
  std::vector<Future<Value>> taken;
  for (const AnyRef& actor : actors) taken.push_back(kTake.ask(actor, path, options.reader));
  all(taken).get();
  return report;
}

void install_whole_models(internal::actors::Worker& worker) {
  using internal::actors::serve;
  serve<kPieces, pieces>(worker);
  serve<kPiece, piece_of>(worker);
  serve<kTake, take>(worker);
}

}  // namespace troupe::parallel
