#include "parallel/tensor/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/optim/optimizer_messages.h"
#include "autograd/distributed/optim/parameter_pieces.h"
#include "core/base/error.h"
#include "ops/ops.h"

namespace troupe::tp {

namespace {

// Of an actor: the parameters of cut_parameter(); whether its copies are counted.
struct CutOver {
  Tensors parameters;
  bool counted = false;
};

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

void count_copies_once(size_t rank) {
  const auto cell = rank ? internal::actors::current_cell() : nullptr;
  if (!cell || std::exchange(cell->keep<CutOver>().counted, true)) return;
  const Tensors& cut = cell->keep<CutOver>().parameters;
  const auto is_cut = [&](const Tensor& p) {
    return std::ranges::any_of(cut, [&](const Tensor& t) { return t.is_same(p); });
  };
  Tensors copies;
  for (const Tensor& p : cell->object().parameters())
    if (p.is_leaf() && !is_cut(p)) copies.push_back(p);  // the others are whole for this call alone
  for (const auto& pieces : optim::pieces_here())
    for (const auto& p : pieces->pieces())
      if (p.piece.defined() && !is_cut(p.whole) && !is_cut(p.piece)) copies.push_back(p.piece);
  optim::leave_out_of_norms("copy of rank 0", std::move(copies));
}

void cut_piece(const Tensor& parameter, const Tensor& piece) {
  const auto cell = internal::actors::current_cell();
  if (!cell) return;
  for (Tensor& t : cell->keep<CutOver>().parameters)
    if (t.is_same(parameter)) t = piece;
}

void count_copies_anew() {
  if (const auto cell = internal::actors::current_cell()) cell->keep<CutOver>().counted = false;
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
