#include "parallel/tensor/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/optim/copies.h"
#include "autograd/distributed/optim/parameter_pieces.h"
#include "collective/engine.h"
#include "core/base/error.h"
#include "ops/ops.h"

namespace troupe::tp {

using internal::collective::is_same_member;

namespace {

using Members = std::vector<ObjectId>;  // of a group

// Of an actor: the parameters of cut_parameter(); among whom its copies are counted.
struct CutOver {
  Tensors parameters;
  Members replicas;
  std::vector<Members> counted;
};

bool is_within(const Members& some, const Members& all) {
  return std::ranges::all_of(some, [&](const ObjectId& m) {
    return std::ranges::any_of(all, [&](const ObjectId& other) { return is_same_member(m, other); });
  });
}

// The placements of all parameters inside a module, by full name.
class Walk final : public nn::Members {
 public:
  explicit Walk(nn::Module& module) { enter(module); }
  std::map<std::string, Placement> placements;
  std::set<std::string> elsewhere;

  void operator()(const std::string&, Tensor&) override {}
  void operator()(const std::string& name, nn::Module& child) override {
    const std::string before = prefix_;
    if (!name.empty()) prefix_ += name + ".";
    enter(child);
    prefix_ = before;
  }
  void buffer(const std::string&, Tensor&) override {}

 private:
  void enter(nn::Module& module) {
    if (const auto* cut = dynamic_cast<const CutModule*>(&module)) {
      for (auto& [name, placement] : cut->placements()) placements.emplace(prefix_ + name, placement);
      for (const std::string& name : cut->elsewhere()) elsewhere.insert(prefix_ + name);
    }
    module.members(*this);
  }
  std::string prefix_;
};

}  // namespace

Tensor Placement::of(const Tensor& parameter) const {
  if (parameter.shape() != whole)
    throw_invalid(
        fmt::format("[placement] the whole parameter is {}, expected {}", parameter.summary(), whole.str()));
  const NoGradGuard off;
  Tensors parts;
  for (const Range& r : ranges) parts.push_back(ops::slice(parameter.detach(), dim, r.from, r.from + r.size));
  return ops::cat(parts, dim);
}

Placement Placement::cut(const Shape& whole, int64_t dim, const std::vector<int64_t>& sizes, size_t rank) {
  Range mine;
  for (size_t r = 0; r < rank; ++r) mine.from += sizes[r];
  mine.size = sizes[rank];
  return {whole, dim, {mine}};
}

std::map<std::string, Placement> placements_of(nn::Module& module) { return Walk(module).placements; }

void load_whole_state(nn::Module& module, const std::map<std::string, Tensor>& whole) {
  const Walk walk(module);
  std::map<std::string, Tensor> mine;
  for (const auto& [name, parameter] : whole) {
    if (walk.elsewhere.contains(name)) continue;
    const auto at = walk.placements.find(name);
    if (at != walk.placements.end() && parameter.shape() != at->second.whole)
      throw_invalid(fmt::format("[load_whole_state] {} is {} in the state, and {} in the module", name,
                                parameter.summary(), at->second.whole.str()));
    mine[name] = at == walk.placements.end() ? parameter : at->second.of(parameter);
  }
  module.load_state_dict(mine);
}

void cut_parameter(const Tensor& parameter) {
  const auto cell = internal::actors::current_cell();
  if (!cell) return;
  cell->keep<CutOver>().parameters.push_back(parameter);
}

void count_copies_once(const Group& group, size_t rank) {
  const auto cell = group.size() > 1 ? internal::actors::current_cell() : nullptr;
  if (!cell) return;
  CutOver& over = cell->keep<CutOver>();
  if (std::ranges::find(over.counted, group.members()) != over.counted.end()) return;
  over.counted.push_back(group.members());
  if (is_within(group.members(), over.replicas)) return;
  const Tensors& cut = over.parameters;
  const auto is_cut = [&](const Tensor& p) {
    return std::ranges::any_of(cut, [&](const Tensor& t) { return t.is_same(p); });
  };
  Tensors copies, pieces;
  for (const Tensor& p : cell->object().parameters())
    if (p.is_leaf() && !is_cut(p)) copies.push_back(p);  // the others are whole for this call alone
  for (const auto& all : optim::pieces_here())
    for (const auto& p : all->pieces()) {
      std::erase_if(copies, [&](const Tensor& t) { return t.is_same(p.piece); });
      if (p.piece.defined() && !is_within(group.members(), all->members()) && !is_cut(p.whole) &&
          !is_cut(p.piece))
        pieces.push_back(p.piece);
    }
  optim::have_copies(internal::collective::number_of(group), group.size(), rank, std::move(copies),
                     std::move(pieces));
}

void cut_piece(const Tensor& parameter, const Tensor& piece) {
  const auto cell = internal::actors::current_cell();
  if (!cell) return;
  for (Tensor& t : cell->keep<CutOver>().parameters)
    if (t.is_same(parameter)) t = piece;
}

void count_copies_anew(const Group& replicas) {
  const auto cell = internal::actors::current_cell();
  if (!cell) return;
  CutOver& over = cell->keep<CutOver>();
  over.counted.clear();
  optim::forget_copies();
  over.replicas = replicas.members();
}

void put(Tensor& parameter, const Tensor& elements) {
  if (!parameter.defined()) {
    parameter = elements.clone_data().requires_grad_();
    return cut_parameter(parameter);
  }
  const NoGradGuard off;
  parameter.copy_(elements.detach());
}

}  // namespace troupe::tp
