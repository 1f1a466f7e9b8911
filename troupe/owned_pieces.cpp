#include "troupe/owned_pieces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/parameter_pieces.h"
#include "core/tensor/creation.h"

namespace troupe::internal {
namespace {

constexpr const char* kPieces = "pieces.";  // begins their names in a state
using tp::Placement;

[[noreturn]] void refuse(const std::string& why) { throw_invalid("[checkpoint] " + why); }

std::vector<int64_t> numbers_of(const OwnedPiece& p) {
  std::vector<int64_t> out{p.whole.rank()};
  out.insert(out.end(), p.whole.begin(), p.whole.end());
  out.insert(out.end(), {p.dim, p.flat, p.from, p.count});
  for (const auto& r : p.ranges) out.insert(out.end(), {r.from, r.size});
  return out;
}

OwnedPiece piece_in(const std::string& name, const Tensor& t) {
  const auto wrong = [&] { refuse("its record " + name + " (" + t.summary() + ") is none of a piece"); };
  if (t.dtype() != int64 || t.dim() != 1) wrong();
  const auto v = t.to_vector<int64_t>();
  size_t at = 0;
  const auto next = [&] {
    if (at == v.size()) wrong();
    return v[at++];
  };
  const int64_t rank = next();
  if (rank < 0 || rank > static_cast<int64_t>(v.size())) wrong();
  OwnedPiece p;
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(next());
  p.whole = Shape(shape);
  p.dim = next(), p.flat = next() != 0, p.from = next(), p.count = next();
  while (at < v.size()) {
    const int64_t from = next(), size = next();
    p.ranges.push_back({from, size});
    if (p.dim < 0 || p.dim >= rank || from < 0 || size < 0 || from > shape[static_cast<size_t>(p.dim)] - size)
      wrong();
  }
  if (std::ranges::any_of(shape, [](int64_t n) { return n < 0; })) wrong();
  if (p.from < 0 || p.count < 0 || p.from > p.local().numel() - p.count) wrong();
  return p;
}

OwnedPiece all_of(const Shape& shape) { return {shape, 0, {}, false, 0, shape.numel()}; }

// How a tensor of that shape lies in the whole, if `of` says how pieces of the parameter do.
OwnedPiece fitted(const OwnedPieces& pieces, const std::string& parameter, const Shape& shape,
                  const std::string& what) {
  const auto at = pieces.find(parameter);
  if (shape.empty() || at == pieces.end()) return all_of(shape);
  OwnedPiece p = at->second;
  if (shape == p.local()) {
    p.flat = false, p.from = 0, p.count = shape.numel();
    return p;
  }
  if (p.flat && shape == Shape{p.count}) return p;
  refuse(fmt::format("{} is {}, expected {}, or a piece of {} elements", what, shape.str(), p.local().str(),
                     p.count));
}

char* at_element(const Tensor& t, int64_t i) {
  return reinterpret_cast<char*>(t.bytes()) + static_cast<size_t>(i) * item_size(t.dtype());
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.numel() == 0 || std::memcmp(a.bytes(), b.bytes(), a.nbytes()) == 0);
}

Tensor cut(const Tensor& whole, const OwnedPiece& piece) {
  const Tensor out = empty(piece.flat ? Shape{piece.count} : piece.local(), whole.dtype());
  piece.for_each_run([&](int64_t from, int64_t to, int64_t count) {
    std::memcpy(at_element(out, to), at_element(whole, from),
                static_cast<size_t>(count) * item_size(whole.dtype()));
  });
  return out;
}

const StateDict& of(const PartOwner& owner, bool model) {
  return model ? owner.state.model : owner.state.rest;
}

bool trains_all(const Tensor& modes) {
  return std::ranges::all_of(modes.to_vector<int64_t>(), [](int64_t m) { return m != 0; });
}

// Of what each actor has by itself: its own from before, else what it has now.
class Rest {
 public:
  Rest(const std::vector<PartOwner>& owners, const std::string& path, const StateDict& here)
      : owners_(owners), here_(here) {
    for (const PartOwner& o : owners)
      if (o.path == path) own_ = &o;
  }

  std::optional<Tensor> own_or_here(const std::string& name) const {
    if (own_)
      if (const auto at = own_->state.rest.find(name); at != own_->state.rest.end()) return at->second;
    return here(name);
  }
  // Which modules train: those of an owner with as many modules and parameters.
  std::optional<Tensor> modes(const std::string& name) const {
    const auto now = here(name);
    if (!now) return std::nullopt;
    bool all = trains_all(*now);
    std::optional<Tensor> fits;
    for (const PartOwner& o : owners_) {
      const auto at = o.state.rest.find(name);
      if (at == o.state.rest.end()) continue;
      all = all && trains_all(at->second);
      if (at->second.shape() == now->shape() && (!fits || &o == own_)) fits = at->second;
    }
    if (fits || all) return fits ? fits : now;
    refuse(name +
           " says that some modules do not train, or parameters are frozen, and its actors had other "
           "modules and parameters than those here: go on with actors that divide the model as those "
           "did");
  }
  Tensor common(const std::string& name) const {
    const PartOwner* first = nullptr;
    for (const PartOwner& o : owners_) {
      const auto at = o.state.rest.find(name);
      if (at == o.state.rest.end()) continue;
      if (!first) first = &o;
      if (!same_bits(at->second, first->state.rest.at(name)))
        refuse(
            fmt::format("{} is another for {} than for {}, so it is no part of a model that they have "
                        "together: go on with as many actors, which divide it as those did",
                        name, o.path, first->path));
    }
    return first->state.rest.at(name);
  }

 private:
  std::optional<Tensor> here(const std::string& name) const {
    const auto at = here_.find(name);
    return at == here_.end() ? std::nullopt : std::optional(at->second);
  }
  const std::vector<PartOwner>& owners_;
  const StateDict& here_;
  const PartOwner* own_ = nullptr;
};

// "fc.weight" of "adam#0.fc.weight.exp_avg"; empty: there is no such parameter.
std::string parameter_in(const std::string& name, const std::set<std::string>& parameters) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return {};
  for (size_t end = name.rfind('.'); end > dot && end != std::string::npos; end = name.rfind('.', end - 1))
    if (auto part = name.substr(dot + 1, end - dot - 1); parameters.contains(part)) return part;
  return {};
}

bool is_stream(const std::string& name) {
  return name == "stream" || name.find(".rng.") != std::string::npos;
}
bool is_modes(const std::string& name) { return name.ends_with(".modes"); }

// Of what any of the owners has.
struct Names {
  explicit Names(const std::vector<PartOwner>& owners) {
    for (const PartOwner& o : owners) {
      for (const auto& [name, t] : o.state.model) model.insert(name);
      for (const auto& [name, t] : o.state.rest) rest.insert(name);
    }
  }
  std::set<std::string> model, rest;
};

// So that one of them can be left out: nobody has something that the others have not, but streams.
void check_together(const std::vector<PartOwner>& owners) {
  const Names names(owners);
  for (const std::string& name : names.model) whole_of(owners, name, true, name);
  for (const std::string& name : names.rest) {
    if (is_stream(name) || is_modes(name)) continue;
    if (const std::string parameter = parameter_in(name, names.model); !parameter.empty())
      whole_of(owners, name, false, parameter);
    else
      Rest(owners, "", {}).common(name);
  }
}

// Names of the tensors of an actor, in all files or in those of the model.
std::vector<std::string> tensors_of(const datasets::CheckpointIndex& index, const std::string& path,
                                    bool model = false) {
  std::vector<std::string> names;
  const std::string begin = path + ".";
  for (const auto& file : index.files)
    if (file.model || !model)
      for (auto at = file.tensors.lower_bound(begin);
           at != file.tensors.end() && at->first.starts_with(begin); ++at)
        names.push_back(at->first.substr(begin.size()));
  return names;
}

}  // namespace

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
        if (p.whole.is_same(t)) names.push_back(name);
      for (const std::string& name : names) {
        OwnedPiece& piece = out.try_emplace(name, all_of(p.shape)).first->second;
        piece.flat = true, piece.from = p.from, piece.count = p.piece.defined() ? p.piece.numel() : 0;
      }
    }
  return out;
}

void add_pieces(StateDict& rest, const OwnedPieces& pieces) {
  for (const auto& [name, piece] : pieces) rest[kPieces + name] = tensor(numbers_of(piece), int64);
}

OwnedPieces take_pieces(StateDict& rest) {
  OwnedPieces out;
  const std::string begin = kPieces;
  for (auto at = rest.lower_bound(begin); at != rest.end() && at->first.starts_with(begin);
       at = rest.erase(at))
    out[at->first.substr(begin.size())] = piece_in(at->first, at->second);
  return out;
}

bool same_pieces(const OwnedPieces& a, const OwnedPieces& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && numbers_of(x.second) == numbers_of(y.second);
  });
}

Tensor whole_of(const std::vector<PartOwner>& owners, const std::string& name, bool model,
                const std::string& parameter) {
  Tensor whole;
  std::string first;
  std::vector<bool> there;
  int64_t missing = 0;
  for (const PartOwner& owner : owners) {
    const auto at = of(owner, model).find(name);
    if (at == of(owner, model).end()) continue;
    const Tensor& part = at->second;
    const OwnedPiece piece = fitted(owner.pieces, parameter, part.shape(), name + " of " + owner.path);
    if (!whole.defined()) {
      whole = empty(piece.whole, part.dtype());
      first = owner.path;
      missing = whole.numel();
      there.resize(static_cast<size_t>(missing));
    }
    if (part.dtype() != whole.dtype() || piece.whole != whole.shape())
      refuse(fmt::format("{} is {} {} for {}, and {} {} for {}", name, troupe::name(whole.dtype()),
                         whole.shape().str(), first, troupe::name(part.dtype()), piece.whole.str(),
                         owner.path));
    const size_t item = item_size(part.dtype());
    piece.for_each_run([&](int64_t to, int64_t from, int64_t count) {
      for (int64_t i = 0, n; i < count; i += n) {
        const bool known = there[static_cast<size_t>(to + i)];
        for (n = 1; i + n < count && there[static_cast<size_t>(to + i + n)] == known;) ++n;
        char *const into = at_element(whole, to + i), *const bytes = at_element(part, from + i);
        const size_t size = static_cast<size_t>(n) * item;
        if (known && std::memcmp(into, bytes, size) != 0)
          refuse(
              fmt::format("{} has other elements for {} than for actors before it: these have no model "
                          "together, so go on with as many, which divide it as they did",
                          name, owner.path));
        if (known) continue;
        std::memcpy(into, bytes, size);
        std::fill_n(there.begin() + static_cast<std::ptrdiff_t>(to + i), n, true);
        missing -= n;
      }
    });
  }
  if (!whole.defined()) refuse("it has no " + name + " of any " + family_of(owners.front().path) + "...");
  if (missing > 0)
    refuse(fmt::format("of {}, {}, it has not {} elements: no {}... had them", name, whole.shape().str(),
                       missing, family_of(owners.front().path)));
  return whole;
}

PartOwner part_owner(const datasets::Checkpoint& checkpoint, const std::string& path) {
  PartOwner o{path, {checkpoint.tensors(path + ".", true), checkpoint.tensors(path + ".", false)}, {}};
  o.pieces = take_pieces(o.state.rest);
  return o;
}

OwnedState cut_again(const std::vector<PartOwner>& owners, const std::string& path, const OwnedState& here,
                     const OwnedPieces& pieces) {
  OwnedState out;
  for (const auto& [name, now] : here.model)
    out.model[name] = cut(whole_of(owners, name, true, name), fitted(pieces, name, now.shape(), name));
  const Names names(owners);
  const Rest rest(owners, path, here.rest);
  for (const std::string& name : names.rest) {
    std::optional<Tensor> mine;
    if (is_stream(name))
      mine = rest.own_or_here(name);
    else if (is_modes(name))
      mine = rest.modes(name);
    else if (const std::string parameter = parameter_in(name, names.model); parameter.empty())
      mine = rest.common(name);
    else if (const auto piece = pieces.find(parameter);
             piece != pieces.end() ? piece->second.count > 0 : here.model.contains(parameter)) {
      const Tensor whole = whole_of(owners, name, false, parameter);
      const bool cut_as_it_is = piece != pieces.end() && whole.shape() == piece->second.whole &&
                                !name.ends_with(".step");  // of a number, too
      mine = cut_as_it_is ? cut(whole, piece->second) : whole;
    }
    if (mine) out.rest[name] = *mine;
  }
  return out;
}

bool is_ours(const std::string& path) {
  return path.substr(path.rfind('/') + 1).starts_with("troupe::");  // npos + 1 is 0
}

std::string family_of(const std::string& path) { return path.substr(0, path.rfind('#') + 1); }

bool TakenModels::check_all_of(const datasets::Checkpoint& checkpoint,
                               const std::map<std::string, std::string>& layout) const {
  const datasets::CheckpointIndex& index = checkpoint.index();
  std::vector<std::string> missing;
  std::set<std::string> fewer;
  for (const auto& [path, worker] : index.layout) {
    if (const std::string family = family_of(path); families.contains(family)) {
      for (const std::string& name : tensors_of(index, path, true))
        if (!names.contains(family + name))
          refuse("it has " + path + "." + name +
                 ", and no actor of this program has a parameter of that name");
      if (!layout.contains(path)) fewer.insert(family);  // others have its part of the model now
      continue;
    }
    const bool stream_alone = is_ours(path) && tensors_of(index, path).size() == 1;  // nobody misses that
    if (!layout.contains(path) && !stream_alone) missing.push_back(path);
  }
  if (!missing.empty())
    refuse(fmt::format("it has {}, which this program has not made", fmt::join(missing, ", ")));
  for (const std::string& family : fewer) {
    std::vector<PartOwner> owners;
    for (const auto& [path, worker] : index.layout)
      if (family_of(path) == family) owners.push_back(part_owner(checkpoint, path));
    check_together(owners);
  }
  return fewer.empty();
}

}  // namespace troupe::internal
