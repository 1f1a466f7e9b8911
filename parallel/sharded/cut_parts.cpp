#include "parallel/sharded/cut_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/model_part.h"
#include "core/graph/node.h"
#include "ops/ops.h"
#include "parallel/sharded/member_part.h"
#include "parallel/sharded/part_pieces.h"

namespace troupe::parallel {
namespace {

// The members of a module that are parameters, with those of all inside.
class ParameterMembers final : public nn::Members {
 public:
  void operator()(const std::string& name, Tensor& parameter) override {
    if (parameter.defined()) all.emplace_back(prefix_ + name, &parameter);
  }
  void operator()(const std::string& name, nn::Module& child) override { add(name, child); }
  void add(const std::string& name, nn::Module& module) {
    const std::string before = prefix_;
    if (!name.empty()) prefix_ += name + ".";
    module.members(*this);
    prefix_ = before;
  }
  void buffer(const std::string&, Tensor&) override {}
  std::vector<std::pair<std::string, Tensor*>> all;

 private:
  std::string prefix_;
};

struct Found {
  std::string name;
  ShardedPart* part;
  MemberPart::Modules modules;  // by their names in the actor's module
};

std::string name_within(const std::string& name, const std::string& member) {
  return name.empty() || member.empty() ? name + member : name + "." + member;
}

void add_parts(HasMemberParts& of, const std::string& name, std::vector<Found>& all) {
  for (MemberPart* part : of.member_parts()) {
    all.push_back({name_within(name, part->name), part, part->modules});
    for (auto& [member, module] : all.back().modules) member = name_within(name, member);
  }
}

Tensors parameters_in(const std::vector<PartPieces::Parameter>& all) {
  Tensors out;
  for (const auto& p : all) out.push_back(p.whole);
  return out;
}

void find(nn::Module& module, const std::string& name, const std::string& within, std::vector<Found>& all) {
  auto* const part = dynamic_cast<ShardedPart*>(&module);
  auto* const has_parts = dynamic_cast<HasMemberParts*>(&module);
  if ((part || has_parts) && !within.empty())
    throw_invalid("[Sharded] part " + name + " lies within part " + within + ": parts have no parts");
  if (part) all.push_back({name, part, {{name, &module}}});
  if (has_parts) add_parts(*has_parts, name, all);
  for (auto& [child, inner] : module.children())
    find(*inner, name_within(name, child), part || has_parts ? name : within, all);
}

// What a state has of a parameter with these names, of which one will do; they leave it.
Tensor take_whole(StateDict& state, const std::vector<std::string>& names, const Shape& shape, DType dtype) {
  Tensor whole;
  std::string first;
  for (const std::string& name : names) {
    const auto node = state.extract(name);
    if (!node) continue;
    if (node.mapped().shape() != shape)
      throw_invalid("[load_state_dict] parameter " + name + " is " + node.mapped().summary() + ", expected " +
                    shape.str());
    const Tensor given = node.mapped().to(dtype);
    if (whole.defined() && !bit_equal(whole.data_on(cpu), given.data_on(cpu)))
      throw_invalid(
          "[load_state_dict] " + first + " and " + name +
          " are one tensor here, and the state has other values for each: give them the same, or one of "
          "the names alone");
    whole = given, first = name;
  }
  if (!whole.defined())
    throw_invalid("[load_state_dict] parameter " + names[0] + " is missing, expected " + shape.str());
  return whole;
}

}  // namespace

CutParts::CutParts(Actor& actor, const Group& group, Per gather, Per reduce, bool spares) {
  const std::string label = internal::actors::current_cell()->label();
  const nn::HeldModule held(actor);
  std::vector<Found> found;
  if (auto* const has_parts = dynamic_cast<HasMemberParts*>(&actor))
    add_parts(*has_parts, "", found);
  else if (held)
    find(*held.get(), "", "", found);
  const Tensors all = actor.parameters();
  if (found.empty() && std::any_of(all.begin(), all.end(), [](const Tensor& p) { return p.requires_grad(); }))
    throw_invalid(
        "[data parallel] actor " + label +
        " has no part that is whole only while it runs: make members of type parallel::Sharded<...>, "
        "or write Shard::gradients");
  std::map<const TensorImpl*, size_t> uses;
  std::vector<std::vector<PartPieces::Parameter>> parameters;
  for (const Found& f : found) {
    if (f.part->pieces_)
      throw_invalid("[data parallel] part " + f.name + " of actor " + label +
                    " was cut before: make new actors for other replicas");
    ParameterMembers members;
    for (const auto& [name, module] : f.modules) members.add(name, *module);
    parameters.emplace_back();
    std::map<const TensorImpl*, size_t> here;
    for (auto& [member, t] : members.all) {
      if (!t->requires_grad() || !t->is_leaf() || t->numel() == 0) continue;
      const auto [at, is_new] = here.emplace(t->impl(), parameters.back().size());
      if (is_new) parameters.back().push_back({{}, {}, *t});
      auto& p = parameters.back()[at->second];
      p.names.push_back(member);
      p.members.push_back(t);
    }
    for (const auto& [impl, i] : here) ++uses[impl];
  }
  uses_ = new_part_uses(gather, reduce);
  for (size_t k = 0; k < found.size(); ++k) {
    auto& mine = parameters[k];
    std::erase_if(mine, [&](const auto& p) { return uses[p.whole.impl()] > 1; });
    if (mine.empty()) continue;
    Tensors wholes;
    for (const auto& p : mine) {
      if (p.whole.dtype() != mine[0].whole.dtype() || p.whole.device() != mine[0].whole.device())
        throw_invalid(
            fmt::format("[Sharded] part {} of actor {} has parameters {} and {}: all of a part have one "
                        "dtype and device, so make several of it",
                        found[k].name, label, mine[0].whole.summary(), p.whole.summary()));
      wholes.push_back(p.whole.detach());
      if (const auto& made = actor.made_parts())  // which would keep its elements
        std::erase_if(made->leaves, [&](const Tensor& leaf) { return leaf.is_same(p.whole); });
    }
    const Tensors before = parameters_in(mine);
    auto* const model = optim::ModelPart::here();
    const auto pieces = std::make_shared<PartPieces>(group, found[k].name, std::move(mine), uses_, spares);
    found[k].part->pieces_ = pieces;
    for (size_t i = 0; i < before.size(); ++i) model->replace(before[i], pieces->pieces()[i].piece);
    model->add(pieces);
    parts_.push_back({pieces, std::move(wholes)});
  }
}

void CutParts::regroup(const Group& group) const {
  for (const Part& p : parts_) p.pieces->regroup(group);
}

std::vector<std::shared_ptr<PartPieces>> CutParts::pieces() const {
  std::vector<std::shared_ptr<PartPieces>> all;
  for (const Part& p : parts_) all.push_back(p.pieces);
  return all;
}

Tensors CutParts::wholes() const {
  Tensors all;
  for (const Part& p : parts_) all.insert(all.end(), p.wholes.begin(), p.wholes.end());
  return all;
}

void CutParts::take() {
  for (Part& p : parts_) {
    p.pieces->take(p.wholes);
    p.wholes.clear();
  }
}

Task<StateDict> CutParts::whole_state(StateDict with_pieces, std::string tag) const {
  const std::vector<Part> parts = parts_;
  for (const Part& p : parts) {
    const Future<Tensor> gathering = p.pieces->gather_once(tag + " of part " + p.pieces->name());
    const Tensor flat = co_await gathering;
    const auto& parameters = p.pieces->parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      for (const std::string& name : parameters[i].names)
        with_pieces[name] = p.pieces->whole_in(flat, i).clone_data();
  }
  co_return with_pieces;
}

StateDict CutParts::load_pieces(StateDict whole) const {
  std::vector<Tensors> all;
  for (const Part& part : parts_) {
    all.emplace_back();
    const auto& parameters = part.pieces->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& piece = part.pieces->pieces()[i];
      all.back().push_back(take_whole(whole, parameters[i].names, piece.place.whole, part.pieces->dtype())
                               .data_on(part.pieces->device()));
    }
  }
  for (size_t k = 0; k < parts_.size(); ++k) {
    const PartPieces& pieces = *parts_[k].pieces;
    parts_[k].pieces->take(all[k]);
    for (size_t i = 0; i < pieces.parameters().size(); ++i)
      if (const Tensor& piece = pieces.pieces()[i].piece; piece.defined())
        for (const std::string& name : pieces.parameters()[i].names) whole[name] = piece.detach();
  }
  return whole;
}

void CutParts::set_share(double share) const {
  if (uses_) parallel::set_share(*uses_, share);
}

bool CutParts::is_piece(const Tensor& t) const {
  for (const Part& p : parts_)
    for (const auto& piece : p.pieces->pieces())
      if (piece.piece.is_same(t)) return true;
  return false;
}

}  // namespace troupe::parallel
