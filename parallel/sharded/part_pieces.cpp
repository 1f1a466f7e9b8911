#include "parallel/sharded/part_pieces.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <set>

#include "actors/cell/actor_cell.h"
#include "actors/cell/invocation.h"
#include "actors/worker/start_task.h"
#include "autograd/distributed/dist_engine.h"
#include "autograd/waiting_step.h"
#include "collective/engine.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/graph/saved_tensor.h"
#include "ops/ops.h"

namespace troupe::parallel {

/// A use's whole parameters, which its steps do not keep: they know where those lie. There are elements while
/// the forward pass runs, and in each backward pass from the Gate to the Reduce.
class PartUse final : public TensorStore {
 public:
  PartUse(std::shared_ptr<PartPieces> part, const PartPieces::Begun& begun, double its_share, Tensor flat)
      : share(its_share),
        part_(part),
        at_(begun.at),
        version_(begun.version),
        for_step_(begun.for_step),
        flat_(std::move(flat)),
        open_(1) {}

  uint32_t put(const Tensor& t) override {
    if (!flat_.defined() || t.storage() != flat_.storage()) return kNot;
    kept_.push_back({t.shape(), t.strides(), t.storage_offset()});
    return static_cast<uint32_t>(kept_.size() - 1);
  }
  Tensor get(uint32_t n) override {
    check_gathered();
    return flat_.alias(kept_[n].shape, kept_[n].strides, kept_[n].offset);
  }
  void drop(uint32_t) override {}
  void saw_leaf(const Tensor&) override {}

  std::shared_ptr<PartPieces> part() const {
    if (auto part = part_.lock()) return part;
    throw_error(ErrorKind::failed, "[Sharded] the actor whose part this was is gone");
  }
  const tp::Meeting& at() const { return at_; }
  Tensor flat() const { return flat_; }
  void open(Tensor flat) {
    if (open_++ == 0) flat_ = std::move(flat);
  }
  void close() {
    if (!for_step_ && open_ > 0 && --open_ == 0) flat_ = {};
  }
  /// No pass will come any more.
  void let_go() { flat_ = {}; }
  std::shared_ptr<void> run_again() override {
    check_gathered();
    return part()->show_wholes(flat_, make_ref<Again>(part()->parameters().size()));
  }
  void check_version() const {
    const auto of = part();
    if (of->version() != version_)
      throw_invalid("[Sharded] parameters of part " + of->name() +
                    " were changed, as by an optimizer's step, between the forward and the backward pass");
  }
  /// The gather of a pass, begun now unless it has been.
  void begin(uint64_t pass) {
    if (coming_.contains(pass)) return;
    check_version();
    coming_[pass] = part()->gather(at_.in_pass(pass).of("gather"));
  }
  Future<Tensor> take(uint64_t pass) {
    begin(pass);
    return std::move(coming_.extract(pass).mapped());
  }
  /// The one before it in its call, whose backward pass comes after this one's.
  Ref<PartUse> before;
  const double share;

 private:
  struct Kept {
    Shape shape, strides;
    int64_t offset;
  };
  // Where gradients would go, while a checkpoint makes tensors again. No pass gets here.
  class Again final : public Node {
   public:
    explicit Again(size_t parameters) { num_inputs_ = static_cast<uint32_t>(parameters); }
    Tensors apply(Tensors&&) override {
      throw_error(ErrorKind::failed, "[Sharded] what a checkpoint runs again has no backward");
    }
    std::string name() const override { return "Again"; }
  };
  void check_gathered() const {
    if (!flat_.defined())
      throw_error(ErrorKind::failed, "[Sharded] a step needs parameters of part " + part()->name() +
                                         " when they are gathered no more");
  }
  const std::weak_ptr<PartPieces> part_;
  const tp::Meeting at_;
  const uint32_t version_;
  const bool for_step_;
  Tensor flat_;
  int open_;
  std::vector<Kept> kept_;
  std::map<uint64_t, Future<Tensor>> coming_;  // by pass
};

struct PartUses {
  /// In one call. All ranks come to the same parts in the same order, and so expect the same.
  struct InCall {
    std::weak_ptr<PartPieces> last;
    std::set<const PartPieces*> seen;
    std::map<const PartPieces*, PartPieces::Begun> ahead;  // that the call has not come to yet
  };
  Per gather, reduce;
  std::map<const PartPieces*, std::weak_ptr<PartPieces>> after = {};  // a part, in the last call
  uint64_t context = 0;
  std::map<uint64_t, Ref<PartUse>> last = {};  // of the calls in that context
  double share = 1;
};

std::shared_ptr<PartUses> new_part_uses(Per gather, Per reduce) {
  return std::make_shared<PartUses>(PartUses{gather, reduce});
}

void set_share(PartUses& uses, double share) { uses.share = share; }

namespace {

// Null: the thread handles no call of an actor.
PartUses::InCall* in_call(const PartUses& uses) {
  const auto* call = frame().call ? &frame().call->outermost() : nullptr;
  if (!call || !call->cell()) return nullptr;
  return &call->keep<std::map<const PartUses*, PartUses::InCall>>()[&uses];
}

// What parts of this worker are gathered for all of a context. Thread-safe.
class GatheredParts {
 public:
  struct Gathered {
    Future<Tensor> elements;
    uint32_t version;  // of this member's
  };
  template <class F>
  Gathered get(const std::shared_ptr<PartPieces>& part, const F& gather) {
    const internal::Lock lock(mutex_);
    const auto at = all_.find(part);
    return at != all_.end() ? at->second
                            : all_.emplace(part, Gathered{gather(), part->version()}).first->second;
  }
  void forget(const std::shared_ptr<PartPieces>& part) {
    decltype(all_)::node_type gone;  // let go after the lock
    const internal::Lock lock(mutex_);
    gone = all_.extract(part);
  }
  // Those in the context of the call.
  static std::shared_ptr<GatheredParts> here() {
    const CallFrame& at = frame();
    auto& contexts = at.worker->extension<autograd::DistEngine>()->contexts();
    return contexts.join(at.context, at.call ? at.call->from() : kNoWorker)->keep<GatheredParts>([] {
      return std::make_shared<GatheredParts>();
    });
  }

 private:
  internal::Mutex mutex_;
  std::map<std::weak_ptr<PartPieces>, Gathered, std::owner_less<>> all_ TROUPE_GUARDED_BY(mutex_);
};

[[noreturn]] void refuse_recorded(const PartUse& use) {
  throw_error(ErrorKind::unimplemented,
              "[Sharded] gradients of a pass that is recorded (create_graph) go through no part: " +
                  use.part()->name());
}

// Behind the whole parameters of a use: their gradients are summed over the uses, and go to the pieces of
// all once.
class ReduceLater final : public Node {
 public:
  explicit ReduceLater(Ref<PartUse> use) : use_(std::move(use)) {
    const Tensors& proxies = use_->part()->proxies();
    num_inputs_ = static_cast<uint32_t>(proxies.size());
    Edges next;
    for (const Tensor& t : proxies) next.push_back(t.gradient_edge());
    set_next(std::move(next));
  }
  void release_saved() override { use_->let_go(); }
  std::string name() const override { return "ReduceLater"; }
  std::string detail() const override { return use_->at().tag; }
  void check_saved() const override { use_->check_version(); }
  Tensors apply(Tensors&& grads) override {
    use_->close();  // nothing reads the parameters any more
    for (const Tensor& g : grads)
      if (g.defined() && g.requires_grad()) refuse_recorded(*use_);
    return std::move(grads);
  }

 private:
  const Ref<PartUse> use_;
};

// Behind the whole parameters of a use: their gradients go to the pieces of all.
class Reduce final : public internal::autograd::WaitingStep {
 public:
  explicit Reduce(Ref<PartUse> use) : use_(std::move(use)) {
    const auto part = use_->part();
    num_inputs_ = static_cast<uint32_t>(part->parameters().size());
    set_next(part->edges());
  }
  void release_saved() override { use_->let_go(); }
  std::string name() const override { return "Reduce"; }
  std::string detail() const override { return use_->at().tag; }
  uint64_t among() const override { return internal::collective::number_of(use_->at().group); }
  bool leaves_for_later() const override { return false; }  // of what reads the parameters
  void check_saved() const override { use_->check_version(); }
  Future<Tensors> begin(Tensors grads, uint64_t pass) override {
    use_->close();  // nothing reads the parameters any more
    for (Tensor& g : grads) {
      if (!g.defined()) continue;
      if (g.requires_grad()) refuse_recorded(*use_);
      if (use_->share != 1) g = ops::mul(g, use_->share);
    }
    return internal::actors::start_task<Tensors>(
        run(use_->part(), std::move(grads), use_->at().in_pass(pass).of("reduce")));
  }

 private:
  static Task<Tensors> run(std::shared_ptr<PartPieces> part, Tensors grads, tp::Meeting at) {
    const Future<Tensor> coming = part->scatter(std::move(grads), at);
    const Tensor came = co_await coming;
    co_return part->unpack(came);
  }
  const Ref<PartUse> use_;
};

// In front of a use's result: gathers its parameters before the gradient goes on, and begins with those of
// the use before it.
class Gate final : public internal::autograd::WaitingStep {
 public:
  Gate(Ref<PartUse> use, const Tensor& result) : use_(std::move(use)) {
    Edges next;
    next.push_back(result.gradient_edge());
    set_next(std::move(next));
  }
  std::string name() const override { return "Gather"; }
  std::string detail() const override { return use_->at().tag; }
  uint64_t among() const override { return internal::collective::number_of(use_->at().group); }
  bool leaves_for_later() const override { return false; }
  Future<Tensors> begin(Tensors grads, uint64_t pass) override {
    const Future<Tensor> coming = use_->take(pass);
    if (use_->before) use_->before->begin(pass);
    return internal::actors::start_task<Tensors>(run(use_, coming, std::move(grads)));
  }

 private:
  static Task<Tensors> run(Ref<PartUse> use, Future<Tensor> coming, Tensors grads) {
    use->open(co_await coming);
    co_return grads;
  }
  const Ref<PartUse> use_;
};

std::vector<int64_t> counts_of(const std::vector<PartPieces::Parameter>& all) {
  std::vector<int64_t> counts;
  for (const auto& p : all) counts.push_back(p.whole.numel());
  return counts;
}

}  // namespace

// Pieces that a member has in `elements`, in the place of what it has without any.
std::vector<PartPieces::Piece> PartPieces::pieces_of(const Tensor& elements,
                                                     const std::vector<BucketCuts::Part>& parts,
                                                     std::vector<Piece> none) {
  int64_t at = 0;
  for (const auto& part : parts) {
    Piece& piece = none[part.parameter];
    piece.place.run = {part.from, part.count};
    piece.piece = flat_range(elements, at, part.count);
    piece.piece.requires_grad_();
    at += part.count;
  }
  return none;
}

PartPieces::PartPieces(const Group& group, std::string name, std::vector<Parameter> parameters,
                       std::shared_ptr<PartUses> uses, bool spares)
    : group_(group),
      name_(std::move(name)),
      parameters_(std::move(parameters)),
      cut_(group_, counts_of(parameters_), parameters_.at(0).whole.options()),
      uses_(std::move(uses)) {
  int64_t at = 0;
  Tensors wholes;
  for (Parameter& p : parameters_) {
    wholes.push_back(p.whole.detach().contiguous_data());
    shapes_.push_back(p.whole.shape());
    p.first = at;
    at += p.whole.numel();
    p.whole = {};
  }
  elements_ = cut_.cut(wholes);
  const auto none_in = [&](const Tensor& elements) {
    std::vector<Piece> none;
    for (size_t i = 0; i < shapes_.size(); ++i)
      none.push_back({elements, {}, {.whole = shapes_[i], .run = {{0, 0}}}, parameters_[i].names});
    return none;
  };
  pieces_ = pieces_of(elements_, cut_.mine(), none_in(elements_));
  if (spares && group_.size() > 1) {
    spare_elements_ = cut_.cut_theirs(wholes);
    spares_ = pieces_of(spare_elements_, cut_.theirs(), none_in(spare_elements_));
  }
  show_pieces();
  if (uses_->reduce == Per::step)
    for (const Shape& shape : shapes_) proxies_.push_back(leaf_without_elements(shape, elements_.options()));
}

void PartPieces::regroup(const Group& group) {
  check_same_rank(group_, group);
  group_ = group;
  uses_->after.clear();  // others have not seen the same calls
  forget_gathered();
}

PartPieces::Begun PartPieces::begin() {
  auto* const call = in_call(*uses_);
  if (!call) return begin_now();
  if (call->seen.insert(this).second) {  // the second use of a part tells nothing of the next call's order
    if (const auto before = call->last.lock()) uses_->after[before.get()] = weak_from_this();
    call->last = weak_from_this();
  }
  auto ahead = call->ahead.extract(this);
  return ahead.empty() || ahead.mapped().version != version() ? begin_now() : std::move(ahead.mapped());
}

void PartPieces::begin_next() {
  auto* const call = in_call(*uses_);
  const auto at = uses_->after.find(this);
  const auto next = call && at != uses_->after.end() ? at->second.lock() : nullptr;
  if (!next || call->seen.contains(next.get()) || call->ahead.contains(next.get())) return;
  call->ahead[next.get()] = next->begin_now();
}

PartPieces::Begun PartPieces::begin_now() {
  const auto meetings = tp::MeetingsOfWorker::here("Sharded");
  const bool for_step = uses_->gather == Per::step && frame().context;
  Begun use{meetings->next_of_layer(group_, "gather", name_), version(), for_step, {}};
  use.elements = for_step ? gather_for_step(*meetings) : gather(use.at);
  return use;
}

Future<Tensor> PartPieces::gather_for_step(tp::Meetings& meetings) {
  const auto gathered = GatheredParts::here()->get(shared_from_this(), [&] {
    return gather(meetings.at(group_, fmt::format("gather {} of part {}", steps_, name_)));
  });
  if (gathered.version != version())
    throw_invalid(
        "[Sharded] parameters of part " + name_ +
        " were written, not by an optimizer's step, after they had been gathered for all of the context: "
        "write them between contexts, or gather in each use (.gather = Per::use)");
  return gathered.elements;
}

void PartPieces::forget_gathered() {
  ++steps_;
  written();
}

void PartPieces::written() {
  if (uses_->gather == Per::step && frame().context) GatheredParts::here()->forget(shared_from_this());
}

void PartPieces::show_pieces() const {
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (Tensor* member : parameters_[i].members) *member = pieces_[i].piece;
}

std::shared_ptr<void> PartPieces::show_wholes(const Tensor& flat, const Ref<Node>& gradients) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor whole = whole_in(flat, i);
    if (gradients) whole.set_grad_fn({gradients, static_cast<uint32_t>(i)});
    for (Tensor* member : parameters_[i].members) *member = whole;
  }
  return {nullptr, [part = shared_from_this()](void*) { part->show_pieces(); }};
}

void PartPieces::take(const Tensors& wholes) {
  Tensors flat;
  for (const Tensor& t : wholes) flat.push_back(t.detach().contiguous_data());
  forget_gathered();
  const NoGradGuard guard;
  elements_.copy_(cut_.cut(flat));
  if (spare_elements_.defined()) spare_elements_.copy_(cut_.cut_theirs(flat));
}

Tensors PartPieces::leaves() const {
  Tensors all;
  for (const auto* some : {&pieces_, &spares_})
    for (const Piece& p : *some) all.push_back(p.piece);
  return all;
}

Edges PartPieces::edges() const {
  Edges all;
  for (const Tensor& leaf : leaves()) all.push_back(leaf.defined() ? leaf.gradient_edge() : Edge());
  return all;
}

Tensor PartPieces::whole_in(const Tensor& flat, size_t i) const {
  return flat.alias(shapes_[i], shapes_[i].contiguous_strides(),
                    flat.storage_offset() + parameters_[i].first);
}

Future<Tensor> PartPieces::gather(const tp::Meeting& at) const {
  const CollectiveOptions options{.tag = at.tag, .gradients = false};
  return cut_.gather(at.group, elements_, options);
}

Future<Tensor> PartPieces::gather_once(const std::string& tag) const {
  const CollectiveOptions options{.tag = tag, .single_use = true, .gradients = false};
  return cut_.gather(group_, elements_, options);
}

Future<Tensor> PartPieces::scatter(Tensors gradients, const tp::Meeting& at) const {
  const CollectiveOptions options{.tag = at.tag, .gradients = false};
  return scatter_in(at.group, std::move(gradients), options);
}

Future<Tensor> PartPieces::scatter(Tensors gradients, const CollectiveOptions& options) const {
  return scatter_in(group_, std::move(gradients), options);
}

Future<Tensor> PartPieces::scatter_in(const Group& group, Tensors gradients,
                                      const CollectiveOptions& options) const {
  return spares_.empty() ? cut_.scatter(group, std::move(gradients), options)
                         : cut_.scatter_twice(group, std::move(gradients), options);
}

Tensors PartPieces::unpack(const Tensor& came) const {
  Tensors gradients(pieces_.size() + spares_.size());
  for (auto& [i, gradient] : cut_.unpack(came)) gradients[i] = std::move(gradient);
  if (!spares_.empty())
    for (auto& [i, gradient] : cut_.unpack_theirs(came)) gradients[pieces_.size() + i] = std::move(gradient);
  return gradients;
}

Tensor PartPieces::run(const std::function<Tensor()>& f, Tensor flat, const Begun& begun) {
  const bool record = grad_enabled();
  Ref<PartUse> use = make_ref<PartUse>(shared_from_this(), begun, uses_->share, flat);
  Ref<Node> reduce;
  if (record && uses_->reduce == Per::step && frame().context)
    reduce = make_ref<ReduceLater>(use);
  else if (record)
    reduce = make_ref<Reduce>(use);
  Tensor result;
  {
    const std::shared_ptr<void> shown = show_wholes(std::exchange(flat, {}), reduce);
    const StoreScope scope(record ? use.get() : TensorStore::current());
    result = f();
  }
  if (begun.for_step) return result;
  use->close();
  if (!record || !result.requires_grad()) return result;
  if (const uint64_t context = frame().context) {
    if (uses_->context != context) uses_->context = context, uses_->last.clear();
    Ref<PartUse>& last = uses_->last[begun.at.call];
    use->before = std::exchange(last, use);
  }
  const Tensor out = result.detach();
  out.set_grad_fn({make_ref<Gate>(use, result), 0});
  return out;
}

}  // namespace troupe::parallel
