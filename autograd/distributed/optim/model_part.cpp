#include "autograd/distributed/optim/model_part.h"

#include <algorithm>

#include "actors/cell/actor_cell.h"
#include "core/base/error.h"
#include "rref/same_member.h"

namespace troupe::optim {

using internal::rref::are_members;

namespace {

bool is_among(const Tensors& all, const Tensor& one) {
  return std::ranges::any_of(all, [&](const Tensor& t) { return t.is_same(one); });
}

[[noreturn]] void refuse_old_versions(const char* word) {
  throw_invalid("[optim] old versions of parameters of actor " + internal::actors::current_cell()->label() +
                " are kept (set_copy_on_write(), DelayedUpdates), and pieces of parameters have none (" +
                word + "): write Shard::none, or leave out what keeps them");
}

}  // namespace

ModelPart* ModelPart::here() {
  const auto cell = internal::actors::current_cell();
  return cell ? &cell->keep<ModelPart>() : nullptr;
}

void ModelPart::add(const std::shared_ptr<ParameterPieces>& pieces) {
  if (keeps_old_versions_) refuse_old_versions(pieces->word());
  std::erase_if(pieces_, [](const auto& p) { return p.expired(); });
  pieces_.push_back(pieces);
}

ModelPart::AllPieces ModelPart::pieces() const {
  AllPieces alive;
  for (const auto& weak : pieces_)
    if (auto pieces = weak.lock()) alive.push_back(std::move(pieces));
  return alive;
}

void ModelPart::keep_old_versions() {
  if (const AllPieces all = pieces(); !all.empty()) refuse_old_versions(all[0]->word());
  keeps_old_versions_ = true;
}

bool ModelPart::has_stale_spares() const {
  const AllPieces all = pieces();
  return stale_spares_ && std::ranges::any_of(all, [](const auto& p) { return !p->spares().empty(); });
}

void ModelPart::replace(const Tensor& parameter, const Tensor& piece) {
  for (Tensor& t : cut_)
    if (t.is_same(parameter)) t = piece;
}

void ModelPart::be_rank(size_t rank, uint64_t group, const Members& members) {
  const internal::Lock lock(mutex_);
  if (members.size() > 1 && std::ranges::find(groups_, group, &RankIn::group) == groups_.end())
    groups_.push_back({group, members, rank});
}

void ModelPart::be_replica(Members replicas) {
  const internal::Lock lock(mutex_);
  std::erase_if(groups_, [&](const RankIn& in) { return are_members(in.members, replicas_); });
  replicas_ = std::move(replicas);
}

void ModelPart::leave_out_of_norms(const std::string& reason, Tensors parameters) {
  left_out_[reason] = std::move(parameters);
}

bool ModelPart::is_left_out(const Tensor& updated) const {
  const auto names = [&](const Tensor& t) {
    return std::ranges::any_of(left_out_, [&](const auto& of) { return is_among(of.second, t); });
  };
  if (std::ranges::all_of(left_out_, [](const auto& of) { return of.second.empty(); })) return false;
  if (names(updated)) return true;
  for (const auto& some : pieces())
    for (const auto& p : some->pieces())
      if (p.piece.defined() && p.piece.is_same(updated)) return p.whole.defined() && names(p.whole);
  return false;
}

const char* ModelPart::piece_word(const Tensor& tensor) {
  const ModelPart* const part = here();
  if (!part) return nullptr;
  for (const auto& some : part->pieces())
    for (const auto& p : some->pieces())
      if (p.piece.defined() && p.piece.is_same(tensor)) return some->word();
  return part->is_cut(tensor) ? "tp::, cut over ranks" : nullptr;
}

bool ModelPart::is_cut(const Tensor& parameter) const { return is_among(cut_, parameter); }

ModelPart::Lies ModelPart::lies(const Tensor& updated, const RankIn& in, const AllPieces& all) const {
  if (is_cut(updated)) return Lies::own;
  for (const auto& some : all)
    for (const auto& p : some->pieces())
      if (p.piece.is_same(updated))
        return is_cut(p.whole) || are_members(in.members, some->members()) ? Lies::own : Lies::piece;
  return Lies::copy;
}

std::vector<CopySizes> ModelPart::count_once(const Tensors& parameters, const std::vector<std::string>& names,
                                             Sizes& counted) const {
  const AllPieces all = pieces();
  std::vector<CopySizes> to_compare;
  Sizes left = counted;
  const internal::Lock lock(mutex_);
  for (const RankIn& in : groups_) {
    if (are_members(in.members, replicas_)) continue;
    CopySizes of{in.group, in.members.size(), {}, {}};
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Lies how = lies(parameters[i], in, all);
      if (in.rank > 0 && how != Lies::own) left.erase(i);
      const auto size = counted.find(i);
      if (how != Lies::copy || (in.rank > 0 && size == counted.end())) continue;
      of.names.push_back(names[i]), of.sizes.push_back(size == counted.end() ? 0 : size->second);
    }
    to_compare.push_back(std::move(of));
  }
  counted = std::move(left);
  return to_compare;
}

void parameters_written() {
  for (const auto& pieces : ModelPart::pieces_here()) pieces->written();
  ModelPart::here()->set_stale_spares(true);
}

}  // namespace troupe::optim
