#include "troupe/checkpoint/owned_pieces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/saved_modes.h"
#include "autograd/distributed/optim/whole_tensor.h"
#include "core/tensor/creation.h"
#include "parallel/sharded/sharded.h"

namespace troupe::internal {
namespace {

constexpr const char* kPieces = "pieces.";  // begins their names in a state
using optim::fitted;
using optim::Placement;

[[noreturn]] void refuse(const std::string& why) { throw_invalid("[checkpoint] " + why); }

Placement piece_in(const std::string& name, const Tensor& t) {
  const std::string what = "[checkpoint] its record " + name + " (" + t.summary() + ")";
  if (t.dtype() != int64 || t.dim() != 1) return Placement::of_numbers({}, what);  // refuses
  return Placement::of_numbers(t.to_vector<int64_t>(), what);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.numel() == 0 || std::memcmp(a.bytes(), b.bytes(), a.nbytes()) == 0);
}

const StateDict& of(const PartOwner& owner, bool model) {
  return model ? owner.state.model : owner.state.rest;
}

// A list of an older checkpoint, or none.
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
  // Which modules do not train, and which parameters are frozen, by names: those of any owner. In older
  // checkpoints they have no names.
  std::optional<Tensor> modes(const std::string& name) const {
    const auto now = here(name);
    const Tensor* found = nullptr;
    bool all = true;
    for (const PartOwner& o : owners_) {
      const auto at = o.state.rest.find(name);
      if (at == o.state.rest.end()) continue;
      all = all && trains_all(at->second);
      if (!found || &o == own_) found = &at->second;
    }
    check_frozen(name);
    return found && (!now || !all) ? *found : now;
  }
  void check_frozen(const std::string& name) const {
    const std::string parameter = frozen_in(name);
    for (const PartOwner& o : owners_)
      if (!parameter.empty() && o.state.model.contains(parameter) && !o.state.rest.contains(name))
        refuse(fmt::format(
            "parameter {} is frozen for some of the actors that have it, and not for {}: go on with as "
            "many actors, which divide it as those did",
            parameter, o.path));
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

// "first.weight" of "first.module.weight".
std::string name_now(std::string name) {
  constexpr std::string_view kBefore = ".module";
  for (size_t at; (at = name.find(std::string(kBefore) + ".")) != std::string::npos;)
    name.erase(at, kBefore.size());
  return name;
}

StateDict names_now(const StateDict& state) {
  StateDict out;
  for (const auto& [name, t] : state) out[name_now(name)] = t;
  return out;
}

bool has_part(nn::Module& module) {
  if (dynamic_cast<troupe::parallel::ShardedPart*>(&module)) return true;
  return std::ranges::any_of(module.children(), [](const auto& child) { return has_part(*child.second); });
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

void add_pieces(StateDict& rest, const Placements& pieces) {
  for (const auto& [name, piece] : pieces) rest[kPieces + name] = tensor(piece.numbers(), int64);
}

Placements take_pieces(StateDict& rest) {
  Placements out;
  const std::string begin = kPieces;
  for (auto at = rest.lower_bound(begin); at != rest.end() && at->first.starts_with(begin);
       at = rest.erase(at))
    out[at->first.substr(begin.size())] = piece_in(at->first, at->second);
  return out;
}

Tensor whole_of(const std::vector<PartOwner>& owners, const std::string& name, bool model,
                const std::string& parameter) {
  optim::WholeTensor all("[checkpoint] " + name,
                         "these have no model together, so go on with as many, which divide it as they did");
  for (const PartOwner& owner : owners)
    if (const auto at = of(owner, model).find(name); at != of(owner, model).end())
      all.add(owner.path, at->second,
              optim::fitted(owner.pieces, parameter, at->second.shape(),
                            "[checkpoint] " + name + " of " + owner.path));
  if (!all.is_begun()) refuse("it has no " + name + " of any " + family_of(owners.front().path) + "...");
  if (all.missing() > 0)
    refuse(fmt::format("of {}, {}, it has not {} elements: no {}... had them", name, all.shape().str(),
                       all.missing(), family_of(owners.front().path)));
  return std::move(all).take();
}

PartOwner part_owner(const datasets::Checkpoint& checkpoint, const std::string& path, bool parts_of_before) {
  PartOwner o{path, {checkpoint.tensors(path + ".", true), checkpoint.tensors(path + ".", false)}, {}};
  if (parts_of_before) o.state.model = names_now(o.state.model), o.state.rest = names_now(o.state.rest);
  o.pieces = take_pieces(o.state.rest);
  return o;
}

bool has_parts_of_before(const datasets::Checkpoint& checkpoint, Actor& actor) {
  const nn::HeldModule held(actor);
  return checkpoint.index().format < 2 && held && has_part(*held.get());
}

OwnedState cut_again(const std::vector<PartOwner>& owners, const std::string& path, const OwnedState& here,
                     const Placements& pieces) {
  OwnedState out;
  for (const auto& [name, now] : here.model)
    out.model[name] =
        fitted(pieces, name, now.shape(), "[checkpoint] " + name).of(whole_of(owners, name, true, name));
  const Names names(owners);
  const Rest rest(owners, path, here.rest);
  for (const std::string& name : names.rest) {
    std::optional<Tensor> mine;
    if (is_stream(name)) {  // of a layer that another stage has now: of no use here
      if (here.rest.contains(name)) mine = rest.own_or_here(name);
    } else if (is_modes(name))
      mine = rest.modes(name);
    else if (const std::string parameter = parameter_in(name, names.model); parameter.empty())
      mine = rest.common(name);
    else if (const auto piece = pieces.find(parameter);
             piece != pieces.end() ? piece->second.shape().numel() > 0 : here.model.contains(parameter)) {
      const Tensor whole = whole_of(owners, name, false, parameter);
      const bool cut_as_it_is = piece != pieces.end() && whole.shape() == piece->second.whole &&
                                !name.ends_with(".step");  // of a number, too
      mine = cut_as_it_is ? piece->second.of(whole) : whole;
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
        if (!names.contains(family + name) && !(index.format < 2 && names.contains(family + name_now(name))))
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
