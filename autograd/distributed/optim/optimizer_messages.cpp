// A distributed optimizer beside an actor: an ordinary optimizer, used in the actor's mailbox.
#include "autograd/distributed/optim/optimizer_messages.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "autograd/distributed/context.h"
#include "autograd/distributed/optim/context_gradients.h"
#include "autograd/distributed/optim/model_part.h"
#include "autograd/distributed/optim/module_actor.h"
#include "autograd/distributed/optim/optimized_actor.h"
#include "autograd/distributed/optim/parameter_filter.h"
#include "autograd/distributed/optim/spare_states.h"
#include "core/base/shown.h"
#include "core/graph/copy_on_write.h"
#include "data/formats/safetensors.h"
#include "nn/module_registry.h"
#include "optim/optim.h"

namespace troupe::optim {
namespace {

using AllPieces = ModelPart::AllPieces;

// What an optimizer updates of an actor: parameters, and pieces of them.
struct Updated {
  Tensors tensors;  // in the actor's order, in which norms add them up, however they are grouped
  std::vector<std::string> names;  // of their parameters
  Tensors leaves;                  // that contexts have gradients of
  std::vector<std::weak_ptr<ParameterPieces>> pieces;

  Updated(const Tensors& parameters, const std::vector<std::string>& names_of_all, const AllPieces& all)
      : pieces(all.begin(), all.end()) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto [cut, by] = piece_of(parameters[i], all);
      if (!cut || by->whole_gradients()) leaves.push_back(parameters[i]);
      const Tensor& updates = cut ? cut->piece : parameters[i];
      if (!updates.defined()) continue;
      if (cut) cut_[updates.impl()] = {cut, by};
      if (cut && !by->whole_gradients()) leaves.push_back(updates);
      tensors.push_back(updates);
      names.push_back(names_of_all[i]);
    }
    for (const auto& some : all)
      for (const auto& spare : some->spares()) add_spare(spare, *some, parameters, names_of_all);
  }
  Tensor gradient(const Tensor& t) const {
    const auto at = cut_.find(t.impl());
    return at == cut_.end() ? autograd::context_gradient(t)
                            : context_gradient(*at->second.first, *at->second.second);
  }
  Tensors gradients(const Tensors& of) const {
    Tensors grads;
    for (const Tensor& t : of) grads.push_back(gradient(t));
    return grads;
  }
  // `invalid` if the pieces that are alive are not those that this was made of.
  void check(const internal::actors::ActorCell& cell) const {
    const AllPieces now = ModelPart::pieces_here();
    check_pieces(now);
    AllPieces mine;
    for (const auto& weak : pieces)
      if (auto p = weak.lock()) mine.push_back(std::move(p));
    if (mine.size() < pieces.size())
      throw_invalid(
          "[optim] what kept the parameters of actor " + cell.label() +
          " equal to those of others is gone, and this optimizer has pieces of them: make a new one");
    if (mine != now)
      throw_invalid(
          fmt::format("[optim] the parameters of actor {} were cut ({}) after this optimizer was "
                      "made: make it afterwards",
                      cell.label(), now.back()->word()));
  }

  Tensors spares;                        // those of the member before
  std::vector<std::string> spare_names;  // of their parameters

 private:
  void add_spare(const ParameterPieces::Piece& spare, const ParameterPieces& by, const Tensors& parameters,
                 const std::vector<std::string>& names_of_all) {
    if (!spare.piece.defined()) return;
    std::string name;
    if (!spare.names.empty())
      name = spare.names.front();
    else
      for (size_t i = 0; i < parameters.size(); ++i)
        if (parameters[i].is_same(spare.whole)) name = names_of_all[i];
    if (name.empty()) return;  // the actor trains it in no optimizer
    cut_[spare.piece.impl()] = {&spare, &by};
    if (!by.whole_gradients()) leaves.push_back(spare.piece);
    spares.push_back(spare.piece);
    spare_names.push_back(std::move(name));
  }
  using Cut = std::pair<const ParameterPieces::Piece*, const ParameterPieces*>;
  static Cut piece_of(const Tensor& parameter, const AllPieces& all) {
    for (const auto& pieces : all)
      for (const auto& piece : pieces->pieces())
        if (piece.whole.is_same(parameter)) return {&piece, pieces.get()};
    return {};
  }
  std::map<const TensorImpl*, Cut> cut_;  // by piece
};

// "fc.weight" of "fc.weight.exp_avg".
std::string parameter_of(const std::string& entry) { return entry.substr(0, entry.rfind('.')); }

bool is_among(const std::string& name, const std::vector<std::string>& all) {
  return std::ranges::find(all, name) != all.end();
}

// An optimizer's state of the pieces of the member before: as it would be there.
class Spares final : public Stateful {
 public:
  Spares(std::unique_ptr<Optimizer> of_spares, const Optimizer& beside, std::vector<std::string> names,
         std::vector<std::string> own_pieces)
      : optimizer(std::move(of_spares)),
        beside_(beside),
        names_(std::move(names)),
        own_pieces_(std::move(own_pieces)) {
    unlist();
    optimizer->unlist();
  }

  OptimizerState state() const override {
    OptimizerState all = beside_.state();
    std::erase_if(all, [&](const auto& entry) { return is_among(parameter_of(entry.first), own_pieces_); });
    for (auto& [name, t] : optimizer->state())
      if (is_among(parameter_of(name), names_)) all[name] = t;
    return all;
  }
  // The state is all that the member before has.
  void load_state(const OptimizerState& state) override {
    OptimizerState mine;
    for (const auto& [name, t] : state)
      if (is_among(parameter_of(name), names_)) mine[name] = t;
    optimizer->load_state(mine);
  }
  const std::unique_ptr<Optimizer> optimizer;

 private:
  const Optimizer& beside_;
  const std::vector<std::string> names_, own_pieces_;
};

struct Attached {
  std::string name;
  std::unique_ptr<Optimizer> optimizer;
  Updated updated;
  std::unique_ptr<Spares> spares = {};  // null: it has none
};

using Optimizers = std::map<std::string, Attached>;  // of an actor, by key

Attached& attached_to(internal::actors::ActorCell& cell, const std::string& key) {
  auto& all = cell.keep<Optimizers>();
  const auto at = all.find(key);
  if (at == all.end()) throw_invalid("[optim] actor " + cell.label() + " has no such optimizer");
  return at->second;
}

GroupOptions options_of(const Optimizer& optimizer) {
  GroupOptions options;
  for (size_t g = 0; g < optimizer.group_count(); ++g) options.push_back(optimizer.options_map(g));
  return options;
}

void set_options(Optimizer& optimizer, const GroupOptions& options) {
  if (options.size() != optimizer.group_count())
    throw_invalid(fmt::format("[optim] options of {} groups came for {} groups", options.size(),
                              optimizer.group_count()));
  for (size_t g = 0; g < options.size(); ++g) optimizer.change_options(g, options[g]);
}

// The tensors that the optimizer trains. `invalid` if that leaves out a module that is a member, or is
// nothing; but a ModuleActor around activations has nothing, as its module says (a stage of a pipeline, say).
Tensors parameters_of(Actor& actor, const internal::actors::ActorCell& cell) {
  const Tensors all = actor.parameters();
  auto* around = dynamic_cast<internal::AnyModuleActor*>(&actor);
  if (all.empty() && !(around && around->any_module().parameters().empty()))
    throw_invalid("[optim] actor " + cell.label() +
                  " has no parameters to train: its parameters() has to return them");
  const auto given = [&](const Tensor& t) {
    return std::any_of(all.begin(), all.end(), [&](const Tensor& p) { return p.is_same(t); });
  };
  void* object = dynamic_cast<void*>(&actor);  // of its own in memory: actors are made with new
  const char* end = nullptr;                   // of the outermost module so far; it speaks for those inside
  for (nn::Module* module : nn::modules_within(object, malloc_usable_size(object))) {
    const auto* begin = static_cast<const char*>(dynamic_cast<const void*>(module));
    if (std::less<>()(begin, end)) continue;
    end = begin + module->object_size();
    for (const auto& [name, t] : module->named_parameters())
      if (t.requires_grad() && !given(t))
        throw_invalid(
            fmt::format("[optim] actor {} has a member {} whose {} ({}) would not be trained: parameters() "
                        "has to return it, or requires_grad_(false) on it",
                        cell.label(), module->str(), name, t.summary()));
  }
  return all;
}

std::vector<std::string> names_of(Actor& actor, const Tensors& parameters) {
  const nn::NamedTensors named = internal::named_parameters_of(actor);
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto at = std::find_if(named.begin(), named.end(),
                                 [&](const auto& entry) { return entry.second.is_same(parameters[i]); });
    names.push_back(at == named.end() ? fmt::format("parameter{}", i) : at->first);
  }
  return names;
}

NamedShapes parameters(Actor& actor, internal::actors::Invocation& call) {
  const Tensors all = parameters_of(actor, *call.cell());
  const std::vector<std::string> names = names_of(actor, all);
  NamedShapes out;
  const AllPieces pieces = ModelPart::pieces_here();
  for (size_t i = 0; i < all.size(); ++i) {
    Shape shape = all[i].shape();
    for (const auto& some : pieces)
      for (const auto& p : some->pieces())
        if (p.piece.is_same(all[i])) shape = p.place.whole;
    out.emplace_back(names[i], shape);
  }
  return out;
}

// The first that names it; 0, whose names do not count, if none does.
size_t group_of(const std::string& name, const std::vector<NamedGroup>& groups) {
  for (size_t g = 1; g < groups.size(); ++g)
    for (const std::string& form : groups[g].names)
      if (name_fits(name, form)) return g;
  return 0;
}

struct Grouped {
  std::unique_ptr<Optimizer> optimizer;
  GroupNames names;
};

Grouped make_grouped(const Tensors& tensors, const std::vector<std::string>& names, const std::string& name,
                     const std::vector<NamedGroup>& groups, const std::string& where) {
  std::vector<OptionGroup> made;
  for (const NamedGroup& g : groups) made.push_back({g.options});
  GroupNames by_group(groups.size());
  for (size_t i = 0; i < tensors.size() && !groups.empty(); ++i) {
    const size_t g = group_of(names[i], groups);
    made[g].params.push_back(tensors[i]);
    by_group[g].push_back(names[i]);
  }
  auto optimizer = make(name, std::move(made));
  std::vector<std::string> in_order;
  for (const auto& of_group : by_group) in_order.insert(in_order.end(), of_group.begin(), of_group.end());
  optimizer->set_names(std::move(in_order), where);
  return {std::move(optimizer), std::move(by_group)};
}

GroupNames create(Actor& actor, internal::actors::Invocation& call, const std::string& key,
                  const std::string& name, const std::vector<NamedGroup>& groups) {
  const Tensors all = parameters_of(actor, *call.cell());
  const std::vector<std::string> names = names_of(actor, all);
  const AllPieces pieces = ModelPart::pieces_here();
  if (!pieces.empty() && needs_whole_parameters(name))
    throw_invalid(
        fmt::format("[optim] {} looks at whole parameters, and actor {} updates pieces of them ({}): write "
                    "Shard::none, or take adamw",
                    name, call.cell()->label(), pieces[0]->word()));
  Updated updated(all, names, pieces);
  const std::string where = " of " + call.cell()->label();
  Grouped own = make_grouped(updated.tensors, updated.names, name, groups, where);
  Attached attached{name, std::move(own.optimizer), std::move(updated)};
  if (const Updated& all_of = attached.updated; !all_of.spares.empty()) {
    std::vector<std::string> pieces_of;
    for (size_t i = 0; i < all_of.tensors.size(); ++i)
      if (ModelPart::piece_word(all_of.tensors[i])) pieces_of.push_back(all_of.names[i]);
    attached.spares = std::make_unique<Spares>(
        make_grouped(all_of.spares, all_of.spare_names, name, groups, where).optimizer, *attached.optimizer,
        all_of.spare_names, std::move(pieces_of));
  }
  call.cell()->keep<Optimizers>().insert_or_assign(key, std::move(attached));
  return own.names;
}

int64_t update(internal::actors::ActorCell& cell, const std::string& key, const GroupOptions& options,
               double factor) {
  const Attached& attached = attached_to(cell, key);
  attached.updated.check(cell);
  Optimizer& optimizer = *attached.optimizer;
  const Tensors grads = attached.updated.gradients(optimizer.params());
  set_options(optimizer, options);
  if (ModelPart::here()->keeps_old_versions())
    for (size_t i = 0; i < grads.size(); ++i)
      if (grads[i].defined()) internal::replace_if_held(optimizer.params()[i]);
  optimizer.step(grads, factor);
  if (attached.spares && ModelPart::here()->updates_spares()) {
    Optimizer& spares = *attached.spares->optimizer;
    set_options(spares, options);
    spares.step(attached.updated.gradients(spares.params()), factor);
  }
  int64_t updated = 0;
  for (const Tensor& g : grads) updated += g.defined();
  return updated;
}

// Over when the parameters have the pieces of all.
Task<int64_t> step(Actor& actor, std::string key, GroupOptions options, double factor) {
  const AllPieces all = ModelPart::pieces_here();
  int64_t updated = 0;
  try {
    updated = update(*internal::actors::current_cell(), key, options, factor);
    ModelPart::here()->stepped(actor);
  } catch (...) {
    for (const auto& pieces : all) pieces->give_up(current_error());
    throw;
  }
  for (const auto& pieces : all) {
    const Future<void> gathering = pieces->gather();
    try {
      co_await gathering;
    } catch (const Error& e) {
      // The step is made here, and there are spares of the pieces of a member that was lost.
      const bool mended = e.kind() == ErrorKind::disconnected && ModelPart::here()->has_points();
      if (!mended || pieces->spares().empty()) throw;
    }
  }
  if (!all.empty()) ModelPart::here()->stepped(actor);
  co_return updated;
}

SizesHere sizes(Actor&, internal::actors::Invocation& call, const std::string& key, bool largest) {
  const Updated& updated = attached_to(*call.cell(), key).updated;
  updated.check(*call.cell());
  const Tensors& parameters = updated.tensors;
  Tensors grads = updated.gradients(parameters);
  const ModelPart& part = *ModelPart::here();
  for (size_t i = 0; i < grads.size(); ++i)
    if (part.is_left_out(parameters[i])) grads[i] = {};
  Sizes by_number;
  const std::vector<double> all = gradient_sizes(grads, largest);
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined()) by_number[i] = all[i];
  SizesHere here;
  if (!largest) here.copies = part.count_once(parameters, updated.names, by_number);  // else once is as often
  for (const auto& [number, s] : by_number) here.counted.push_back(s);
  return here;
}

std::vector<double> ready(Actor& actor, internal::actors::Invocation& call, const std::string& key,
                          const GroupOptions& options, bool with_sizes) {
  const Attached& attached = attached_to(*call.cell(), key);
  attached.updated.check(*call.cell());
  set_options(*attached.optimizer, options);
  return with_sizes ? sizes(actor, call, key, true).counted : std::vector<double>();
}

void scale(Actor&, internal::actors::Invocation& call, const std::string& key, double factor, bool wide) {
  const Updated& updated = attached_to(*call.cell(), key).updated;
  updated.check(*call.cell());
  scale_gradients(updated.leaves, factor, wide);
}

OptimizerState state(Actor&, internal::actors::Invocation& call, const std::string& key,
                     const GroupOptions& options) {
  Optimizer& optimizer = *attached_to(*call.cell(), key).optimizer;
  set_options(optimizer, options);
  auto state = optimizer.state();
  for (auto& [name, t] : state) t = t.data_on(cpu);  // who asks may have no such device
  return state;
}

GroupOptions load_state(Actor&, internal::actors::Invocation& call, const std::string& key,
                        const OptimizerState& state) {
  Optimizer& optimizer = *attached_to(*call.cell(), key).optimizer;
  optimizer.load_state(state);
  ModelPart::here()->set_stale_spares(true);
  return options_of(optimizer);
}

constexpr const char* kKind = "troupe.optimizer";  // in a file's metadata: the optimizer's name

void save(Actor&, internal::actors::Invocation& call, const std::string& key, const GroupOptions& options,
          const std::string& folder, const std::string& file) {
  Attached& attached = attached_to(*call.cell(), key);
  refuse_nul("[optim]", folder);
  set_options(*attached.optimizer, options);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error(ErrorKind::failed, "[optim] cannot make the folder " + folder + ": " + error.message());
  datasets::write_safetensors((std::filesystem::path(folder) / file).string(), attached.optimizer->state(),
                              {{kKind, attached.name}});
}

GroupOptions load(Actor&, internal::actors::Invocation& call, const std::string& key,
                  const std::string& folder, const std::string& file) {
  Attached& attached = attached_to(*call.cell(), key);
  const std::string path = (std::filesystem::path(folder) / file).string();
  const datasets::Safetensors source(path);
  const auto kind = source.metadata().find(kKind);
  if (kind == source.metadata().end() || kind->second != attached.name)
    throw_invalid(
        "[optim] " + path + " holds " +
        (kind == source.metadata().end() ? "no optimizer's state" : "the state of " + kind->second) +
        ", expected that of " + attached.name);
  attached.optimizer->load_state(source.tensors());
  ModelPart::here()->set_stale_spares(true);
  return options_of(*attached.optimizer);
}

void drop(Actor&, internal::actors::Invocation& call, const std::string& key) {
  call.cell()->keep<Optimizers>().erase(key);
}

Optimizers& optimizers_here() { return internal::actors::current_cell()->keep<Optimizers>(); }

}  // namespace

std::map<std::string, OptimizerState> states_here() {
  std::map<std::string, OptimizerState> all;
  for (const auto& [key, attached] : optimizers_here()) all[key] = attached.optimizer->state();
  return all;
}

void load_spares(const std::map<std::string, OptimizerState>& states) {
  for (auto& [key, attached] : optimizers_here()) {
    if (!attached.spares) continue;
    const auto at = states.find(key);
    if (at == states.end())
      throw_invalid("[optim] the member before actor " + internal::actors::current_cell()->label() +
                    " has not all of its optimizers");
    attached.spares->load_state(at->second);
  }
  ModelPart::here()->set_stale_spares(false);
}

internal::StandIns spares_here() {
  if (ModelPart::here()->has_stale_spares())
    throw_error(ErrorKind::failed, "[optim] actor " + internal::actors::current_cell()->label() +
                                       " has no spares of now: they are taken as the next step begins");
  internal::StandIns all;
  for (const auto& [key, attached] : optimizers_here())
    if (attached.spares) all[attached.optimizer.get()] = attached.spares.get();
  return all;
}

int64_t spare_bytes_here() {
  int64_t bytes = 0;
  for (const auto& [key, attached] : optimizers_here())
    if (attached.spares)
      for (const auto& [name, t] : attached.spares->optimizer->state())
        if (t.dim() > 0) bytes += static_cast<int64_t>(t.nbytes());
  return bytes;
}

void set_copy_on_write() {
  ModelPart* const part = ModelPart::here();
  if (!part) throw_invalid("[optim] set_copy_on_write() is for the constructor and the methods of an actor");
  part->keep_old_versions();
}

}  // namespace troupe::optim

namespace troupe::internal {

void install_optimized_actors(actors::Worker& worker) {
  using namespace troupe::optim;
  using internal::actors::serve;
  internal::set_piece_word(ModelPart::piece_word);
  serve<kParameters, parameters>(worker);
  serve<kCreate, create>(worker);
  serve<kStep, step>(worker);
  serve<kReady, ready>(worker);
  serve<kSizes, sizes>(worker);
  serve<kScale, scale>(worker);
  serve<kState, state>(worker);
  serve<kLoadState, load_state>(worker);
  serve<kSave, save>(worker);
  serve<kLoad, load>(worker);
  serve<kDrop, drop>(worker);
}

}  // namespace troupe::internal
