#include "parallel/data/replica.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/optim/first_values.h"
#include "autograd/distributed/optim/held_module.h"
#include "autograd/distributed/optim/model_part.h"
#include "core/base/generator.h"
#include "core/base/seed_stream.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"
#include "parallel/data/reducer_names.h"
#include "parallel/data/replica_points.h"
#include "parallel/data/replica_reducer.h"
#include "parallel/data/shared_buffers.h"
#include "parallel/sharded/cut_parts.h"

namespace troupe::parallel {
namespace {

struct Joined {
  Group group;
  internal::parallel::ReplicaReducer reducer;
  SharedBuffers buffers = {};
  CutParts parts = {};
  std::shared_ptr<ParameterAverage> average = {};
  bool divides = false;                                             // Shard::none does not
  bool is_local() const { return average && average->is_local(); }  // what it sends is counted from a mean on
};

constexpr const char* kReplica = "replica";  // why norms leave something out

using AllJoined = std::map<std::string, std::shared_ptr<Joined>>;  // of an actor, by key

AllJoined& all_joined() { return internal::actors::current_cell()->keep<AllJoined>(); }

std::shared_ptr<Joined> find_joined(const std::string& key) {
  const auto at = all_joined().find(key);
  return at == all_joined().end() ? nullptr : at->second;
}

std::shared_ptr<Joined> joined(const std::string& key) {
  if (auto found = find_joined(key)) return found;
  throw_invalid("[data parallel] actor " + internal::actors::current_cell()->label() +
                " has left these replicas");
}

// The tensors of the first member, for all.
Task<Tensors> those_of_first(Group group, Tensors tensors, std::string tag) {
  std::map<std::pair<DType, std::string>, std::vector<size_t>> kinds;
  for (size_t i = 0; i < tensors.size(); ++i)
    kinds[{tensors[i].dtype(), tensors[i].device().str()}].push_back(i);
  std::vector<Future<Tensors>> under_way;
  for (const auto& [kind, numbers] : kinds) {
    Tensors brings;
    for (const size_t i : numbers) brings.push_back(tensors[i].detach());
    under_way.push_back(group.broadcast(
        std::move(brings), 0,
        {.tag = tag + "/" + std::to_string(under_way.size()), .single_use = true, .gradients = false}));
  }
  auto at = under_way.begin();
  for (const auto& [kind, numbers] : kinds) {
    const Tensors came = co_await *at++;
    for (size_t i = 0; i < numbers.size(); ++i) tensors[numbers[i]] = came[i];
  }
  co_return tensors;
}

Task<void> take_from_first(Group group, Tensors tensors, std::string tag) {
  const auto coming = those_of_first(group, tensors, std::move(tag));
  const Tensors came = co_await coming;
  const NoGradGuard guard;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (group.rank() > 0) tensors[i].copy_(came[i]);
}

// Where random numbers come from: as RNG states of modules have it, and that of the actor's stream.
constexpr const char* kStream = "actor";
std::map<std::string, Tensor> random_places(const nn::HeldModule& held) {
  std::map<std::string, Tensor> places;
  if (held) places = held->rng_state();
  const Generator::Position at = current_stream().position();
  places[kStream] =
      tensor(std::vector<int64_t>{static_cast<int64_t>(at.seed), static_cast<int64_t>(at.counter)}, int64);
  return places;
}

// The stream of a rank: that of the first, split.
Tensor own_place(const Tensor& first, size_t rank) {
  const auto at = first.to_vector<int64_t>();
  Generator random;
  random.set_position({static_cast<uint64_t>(at[0]), static_cast<uint64_t>(at[1])});
  const Generator::Position own = random.split(rank).position();
  return tensor(std::vector<int64_t>{static_cast<int64_t>(own.seed), static_cast<int64_t>(own.counter)},
                int64);
}

// A replica that would draw what the first one draws, masks of dropout say, draws numbers of its own.
void draw_apart(const nn::HeldModule& held, const std::map<std::string, Tensor>& mine, const Tensors& firsts,
                size_t rank) {
  std::map<std::string, Tensor> places;
  auto first = firsts.begin();
  for (const auto& [name, own] : mine) {
    const Tensor& of_first = *first++;
    places[name] = own.equal(of_first) ? own_place(of_first, rank) : own;
  }
  const auto stream = places.extract(kStream).mapped().to_vector<int64_t>();
  current_stream().set_position({static_cast<uint64_t>(stream[0]), static_cast<uint64_t>(stream[1])});
  if (held) held->load_rng_state(places);
}

// Those of the parameters that a replica updates as they are, as all others do.
Tensors whole_in(const Tensors& parameters, const Tensors& updated) {
  Tensors all;
  for (const Tensor& p : parameters)
    if (std::ranges::any_of(updated, [&](const Tensor& t) { return t.is_same(p); })) all.push_back(p);
  return all;
}

void leave_all() {
  all_joined().clear();
  optim::ModelPart::here()->leave_out_of_norms(kReplica, {});
  optim::ModelPart::here()->be_replica({});
}

// A replica keeps this when it goes on among others: optimizers have pieces of it.
struct Kept {
  bool stays = false;
  std::shared_ptr<CutParameters> cut = {};
  CutParts parts = {};
  StateDict residuals = {}, average = {};
};

Kept leave_before(const JoinOrder& order) {
  if (!order.again) return {};
  Kept kept;
  if (is_replica()) {
    const Joined& before = *all_joined().begin()->second;
    kept = {true, before.reducer.cut(), before.parts, before.reducer.residuals(),
            before.average ? before.average->state() : StateDict()};
  }
  leave_all();
  return kept;
}

// Each context in which optimizers have stepped is one step.
void count_step_of_replica(Actor&) {
  for (const auto& [key, here] : all_joined())
    if (here->average) here->average->count_step(frame().context);
}

std::shared_ptr<ParameterAverage> average_for(const JoinOrder& order, const Tensors& parameters,
                                              const StateDict& kept) {
  if (!order.average.on()) return nullptr;
  auto average =
      std::make_shared<ParameterAverage>(order.group, parameters, order.average, order.name + "/mean");
  if (!kept.empty()) average->load_state(kept);
  optim::ModelPart::here()->on_steps(count_step_of_replica);
  return average;
}

CutParts parts_of(Actor& actor, const JoinOrder& order, const Kept& kept) {
  if (kept.stays) {
    kept.parts.regroup(order.group);
    return kept.parts;
  }
  if (static_cast<Shard>(order.shard) != Shard::all) return {};
  return {actor, order.group, static_cast<Per>(order.gather), static_cast<Per>(order.reduce), order.spares};
}

ReducerOptions options_in(const JoinOrder& order) {
  const auto shard = static_cast<Shard>(order.shard);
  return {.name = order.name,
          .buckets = {static_cast<size_t>(order.first_bucket), static_cast<size_t>(order.other_buckets)},
          .compression = order.compression,
          .aggregation = order.aggregation,
          .shard = shard == Shard::all ? Shard::gradients : shard};
}

Task<int64_t> join_replicas(Actor& actor, JoinOrder order) {
  Kept kept = leave_before(order);
  if (is_replica())  // their passes would wait for those that are not among these
    throw_invalid(
        "[data parallel] actor " + internal::actors::current_cell()->label() +
        " is one of other replicas: let go of the DataParallel or Pipelines that made it one first");
  const auto shard = static_cast<Shard>(order.shard);
  const auto reduce = static_cast<Per>(order.reduce);
  const CutParts parts = parts_of(actor, order, kept);
  Tensors parameters = actor.parameters();
  std::erase_if(parameters, [&](const Tensor& p) { return parts.is_piece(p); });
  Tensors buffers;
  const nn::HeldModule held{actor};
  if (held)
    for (const auto& [name, buffer] : held->named_buffers()) buffers.push_back(buffer);
  auto average = average_for(order, parameters, kept.average);
  auto reduced = reduce == Per::step ? parts.pieces() : std::vector<std::shared_ptr<PartPieces>>();
  const auto here = std::make_shared<Joined>(Joined{order.group,
                                                    {order.group,
                                                     parameters,
                                                     options_in(order),
                                                     {.parts = std::move(reduced),
                                                      .cut = std::move(kept.cut),
                                                      .average = average,
                                                      .spares = order.spares}}});
  here->parts = parts;
  here->average = std::move(average);
  here->reducer.load_residuals(kept.residuals);
  here->divides = shard != Shard::none;
  auto* const model = optim::ModelPart::here();
  model->be_replica(internal::collective::ids_of(order.group));
  all_joined()[order.key] = here;
  if (order.group.rank() > 0)
    model->leave_out_of_norms(kReplica, whole_in(parameters, here->reducer->pieces()));
  if (order.again) {
    if (!kept.stays) here->parts.take();
    if (order.buffers) here->buffers = SharedBuffers(std::move(buffers));
    if (order.group.rank() > 0) here->buffers.differ();
    co_return static_cast<int64_t>(here->buffers.all().size());
  }
  Tensors all = parameters;
  all.insert(all.end(), buffers.begin(), buffers.end());
  const auto mine = random_places(held);
  Tensors firsts;
  for (const auto& [name, place] : mine) firsts.push_back(place.clone_data());
  all.insert(all.end(), firsts.begin(), firsts.end());
  for (const Tensor& t : here->parts.wholes()) all.push_back(t);
  const Future<void> own = optim::first_values();
  const optim::FirstValues coming;
  co_await own;
  const auto taking = take_from_first(order.group, all, here->reducer->name() + "/start");
  co_await taking;
  all.clear();
  here->parts.take();
  if (here->average) here->average->begin_anew();
  const size_t rank = order.group.rank();
  if (rank > 0) draw_apart(held, mine, firsts, rank);
  if (order.buffers) here->buffers = SharedBuffers(std::move(buffers));
  co_return static_cast<int64_t>(here->buffers.all().size());
}

// Without elements: it counts for nothing wherever it is put.
Tensor give_anchor(const std::string& key) {
  const auto here = joined(key);
  if (!here->divides && here->buffers.all().empty() && !here->is_local()) count_sent_from_here();
  return here->reducer.anchor().slice(0, 0, 0);
}

Task<void> take_buffers(std::string key, uint64_t number, bool record) {
  const auto here = joined(key);
  const Future<void> gathered = here->reducer->gathered();
  co_await gathered;
  if (!here->is_local()) record ? count_sent_from_here() : count_sent_up_to_here();
  if (here->buffers.all().empty()) co_return;
  Tensors brings = here->buffers.all();
  const bool first = here->group.rank() == 0;
  brings.push_back(first ? here->buffers.numbers() : zeros({static_cast<int64_t>(brings.size())}, int64));
  const auto coming = those_of_first(here->group, std::move(brings),
                                     here->reducer->name() + "/buffers " + std::to_string(number));
  const Tensors came = co_await coming;
  if (!first) here->buffers.take(came, came.back());
}

Task<RankBytes> bytes(Actor& actor, std::string key) {
  if (!key.empty()) {
    const Future<void> gathered = joined(key)->reducer->gathered();
    co_await gathered;
  }
  RankBytes out = rank_bytes(actor);
  if (!key.empty()) out.summed = joined(key)->reducer.summed_bytes();
  co_return out;
}

Task<StateDict> state_dict(Actor& actor, std::string key, uint64_t number) {
  const auto here = joined(key);
  const Future<void> gathered = here->reducer->gathered();
  co_await gathered;
  StateDict state;
  if (const nn::HeldModule held{actor}) state = held->state_dict();
  for (auto& [name, t] : state) t = internal::lazy_copy(t);
  const auto making =
      here->parts.whole_state(std::move(state), here->reducer->name() + "/state " + std::to_string(number));
  state = co_await making;
  if (here->group.rank() > 0) co_return StateDict();
  for (auto& [name, t] : state) t = t.data_on(cpu);
  co_return state;
}

void load_state_dict(Actor& actor, const std::string& key, const StateDict& state) {
  const auto here = joined(key);
  const nn::HeldModule held{actor};
  if (!held)
    throw_invalid("[data parallel] actor " + internal::actors::current_cell()->label() + " has no module");
  held->load_state_dict(here->parts.load_pieces(state));
  if (here->average) here->average->begin_anew();
}

void set_accumulating(const std::string& key, bool on) { joined(key)->reducer.set_accumulating(on); }

void leave_replicas(const std::string& key) {
  if (find_joined(key)) leave_all();
}

}  // namespace

void install_replicas(internal::actors::Worker& worker) {
  ReducerNames::install(worker);
  using internal::actors::serve;
  serve<kJoin, join_replicas>(worker);
  serve<kAnchor, give_anchor>(worker);
  serve<kBuffers, take_buffers>(worker);
  serve<kAccumulate, set_accumulating>(worker);
  serve<kBytes, bytes>(worker);
  serve<kState, state_dict>(worker);
  serve<kLoadState, load_state_dict>(worker);
  serve<kLeave, leave_replicas>(worker);
  install_points(worker);
}

void set_share(const std::string& key, double share) { joined(key)->parts.set_share(share); }

std::shared_ptr<ParameterAverage> average_of(const std::string& key) {
  if (auto average = joined(key)->average) return average;
  throw_invalid("[data parallel] nothing averages the parameters of actor " +
                internal::actors::current_cell()->label());
}

std::string reducer_name_of(const std::string& key) { return joined(key)->reducer->name(); }

bool is_replica() { return !all_joined().empty(); }

const internal::parallel::ReplicaReducer* reducer_of(const std::string& key) {
  const auto found = find_joined(key);
  return found ? &found->reducer : nullptr;
}

}  // namespace troupe::parallel
