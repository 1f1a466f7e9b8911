#include "parallel/sharded/rank_bytes.h"

#include <algorithm>
#include <optional>

#include "actors/cell/actor_cell.h"
#include "actors/worker/worker.h"
#include "autograd/distributed/optim/model_part.h"
#include "autograd/distributed/optim/spare_states.h"
#include "collective/engine.h"
#include "core/base/readable_bytes.h"
#include "core/base/text_table.h"
#include "core/graph/stateful.h"
#include "optim/optimizer.h"
#include "parallel/tensor/meetings.h"

namespace troupe::parallel {
namespace {

// Kept with an actor: before its step.
struct SentBytes {
  int64_t in_groups = 0, converted = 0;

  static SentBytes now() {
    internal::actors::Worker& worker = internal::actors::current_cell()->worker();
    const auto* const engine = worker.extension<internal::collective::GroupEngine>();
    const auto* const meetings = worker.extension<tp::MeetingsOfWorker>();
    return {engine ? engine->sent_bytes() : 0, meetings ? meetings->converted_bytes() : 0};
  }
};

struct SentCount {
  SentBytes before;
  std::optional<SentBytes> end = {};  // empty: it goes on
};

int64_t bytes_of(const Tensor& t) { return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0; }

void add_parameters(Actor& actor, RankBytes& out) {
  std::vector<const TensorImpl*> counted;
  for (const auto& some : optim::ModelPart::pieces_here())
    for (const auto& p : some->pieces()) {
      if (!p.whole.defined()) continue;  // not divided
      const auto size = p.place.whole.numel() * static_cast<int64_t>(item_size(p.whole.dtype()));
      const int64_t piece = bytes_of(p.piece);
      const bool in_part = some->word() == std::string_view(word(Shard::all));
      out.whole += size;
      out.parameters += in_part ? piece : size;
      out.gradients += some->whole_gradients() ? size : piece;
      if (in_part) out.in_parts += size;
      const Tensor& kept = in_part ? p.piece : p.whole;
      if (kept.defined()) counted.push_back(kept.impl());
    }
  for (const auto& some : optim::ModelPart::pieces_here())
    for (const auto& spare : some->spares()) {
      if (spare.piece.defined() && !spare.names.empty()) out.parameters += bytes_of(spare.piece);
      if (!some->whole_gradients()) out.gradients += bytes_of(spare.piece);
    }
  for (const Tensor& p : actor.parameters()) {
    if (std::ranges::find(counted, p.impl()) != counted.end()) continue;
    out.whole += bytes_of(p), out.parameters += bytes_of(p);
    (p.requires_grad() ? out.gradients : out.frozen) += bytes_of(p);
  }
}

}  // namespace

void count_sent_from_here() {
  internal::actors::current_cell()->keep<SentCount>() = SentCount{SentBytes::now()};
}

void count_sent_up_to_here() {
  if (auto* count = internal::actors::current_cell()->kept<SentCount>(); count && !count->end)
    count->end = SentBytes::now();
}

RankBytes rank_bytes(Actor& actor) {
  const auto cell = internal::actors::current_cell();
  RankBytes out{.actor = cell->label()};
  add_parameters(actor, out);
  for (const Stateful* s : Stateful::made_by(cell.get()))
    if (dynamic_cast<const optim::Optimizer*>(s))
      for (const auto& [name, t] : s->state())
        if (t.dim() > 0) out.state += bytes_of(t);
  out.state += optim::spare_bytes_here();
  if (const auto* count = cell->kept<SentCount>()) {
    const SentBytes end = count->end.value_or(SentBytes::now());
    out.sent = end.in_groups - count->before.in_groups,
    out.converted = end.converted - count->before.converted;
  }
  return out;
}

RankBytes expected_of(const std::vector<RankBytes>& replicas, size_t r, const ShardWays& ways) {
  const RankBytes& has = replicas.at(r);
  const auto n = static_cast<double>(replicas.size()), uses = static_cast<double>(ways.uses);
  const auto parts = static_cast<double>(has.in_parts), frozen = static_cast<double>(has.frozen),
             others = static_cast<double>(has.whole) - parts - frozen;
  double states = 0;
  for (const RankBytes& b : replicas) states += static_cast<double>(b.state);
  const bool cuts_gradients = ways.shard == Shard::gradients || ways.shard == Shard::all;
  const double of_parts = (ways.gather == Per::use ? 2 * uses : 1) + (ways.reduce == Per::use ? uses : 1);
  // The sums for a spare piece come from the member that has it, once for each reduction.
  const double of_spares =
      !ways.spares || !cuts_gradients ? 0 : ((ways.reduce == Per::use ? uses : 1) * parts + others) / n;
  const double summed = has.summed < 0 ? others : static_cast<double>(has.summed);
  const double of_others = (cuts_gradients ? others : 2 * summed) + (ways.shard == Shard::none ? 0 : others);
  const double sends = (of_parts * parts + of_others) * (n - 1) / n + of_spares;
  const auto whole_bytes = [](double bytes) { return static_cast<int64_t>(bytes); };
  RankBytes out = has;
  const double pieces = (ways.spares ? 2 : 1) / n;
  out.parameters = whole_bytes(frozen + others + parts * pieces);
  out.gradients = whole_bytes(others * (cuts_gradients ? pieces : 1) + parts * pieces);
  out.state = whole_bytes(states / n);
  out.sent = whole_bytes(sends) + has.converted;
  return out;
}

std::string bytes_table(const std::vector<std::pair<std::string, RankBytes>>& rows, bool stages) {
  std::vector<std::vector<std::string>> cells{{"", "parameters", "gradients", "optimizer", "sent in a step"}};
  if (stages) cells[0].emplace_back("to other stages");
  for (const auto& [name, b] : rows) {
    cells.push_back({name, readable_bytes(b.parameters), readable_bytes(b.gradients), readable_bytes(b.state),
                     readable_bytes(b.sent)});
    if (stages) cells.back().push_back(readable_bytes(b.to_stages));
  }
  return internal::text_table(cells, true);
}

}  // namespace troupe::parallel
