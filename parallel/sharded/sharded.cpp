#include "parallel/sharded/sharded.h"

#include "actors/cell/this_call.h"
#include "parallel/sharded/part_pieces.h"

namespace troupe::parallel {

void ShardedPart::refuse_cut(const ShardedPart& part) {
  if (part.pieces_)
    throw_invalid(
        "[Sharded] part " + part.pieces_->name() +
        " was copied or moved after replicas were made of its actor: put parts where they stay before that");
}

Task<Tensor> ShardedPart::use(std::function<Tensor()> f) {
  const std::shared_ptr<PartPieces> part = pieces_;
  if (!part) co_return f();
  const PartPieces::Begun begun = part->begin();
  this_call::waits_for("the parameters of part " + part->name() + " from all replicas");
  Tensor flat = co_await begun.elements;
  this_call::waits_for("");
  part->begin_next();
  co_return part->run(f, std::move(flat), begun);
}

Task<Tensor> ShardedPart::sum_of(std::function<tp::Part()> f) {
  tp::Part part;
  const auto summand = use([&part, &f] {
    part = f();
    return part.summand;
  });
  part.summand = co_await summand;
  co_return co_await part;
}

}  // namespace troupe::parallel
