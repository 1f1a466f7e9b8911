#include "autograd/distributed/context_state.h"

#include "autograd/add_gradient.h"
#include "core/base/error.h"
#include "core/value/owned_number.h"

namespace troupe::autograd {

using internal::Lock;

namespace {

constexpr const char* kFailedElsewhere = "[backward] the pass has failed elsewhere";

}  // namespace

ActorRegion::ActorRegion(const RunOptions& how, Tensors inputs)
    : internal::autograd::Region(
          how, inputs.empty() ? std::vector<Edge>{} : internal::autograd::input_edges("backward", inputs)),
      inputs_(std::move(inputs)) {}

bool ContextState::add_send(uint64_t pair, Send send) {
  const Lock lock(mutex_);
  if (send.pass) {
    if (dropped_.contains(send.pass)) throw_error(ErrorKind::cancelled, kFailedElsewhere);
    recorded_[send.pass].push_back(pair);
  }
  overlap_.add(send.node->next());
  sends_.emplace(pair, std::move(send));
  return overlap_.found();
}

void ContextState::drop_send(uint64_t pair) {
  std::unordered_map<uint64_t, Send>::node_type node;  // let go after the lock
  const Lock lock(mutex_);
  node = sends_.extract(pair);
}

ContextState::Send ContextState::find_send(uint64_t pair) const {
  const Lock lock(mutex_);
  auto at = sends_.find(pair);
  return at == sends_.end() ? Send{} : at->second;
}

bool ContextState::shared() const {
  const Lock lock(mutex_);
  return overlap_.found();
}

void ContextState::note_shared() {
  const Lock lock(mutex_);
  overlap_.note();
}

bool ContextState::shared_by(const std::vector<Edge>& roots) const {
  const Lock lock(mutex_);
  return overlap_.met_by(roots);
}

std::pair<std::shared_ptr<ActorRegion>, bool> ContextState::region(
    uint64_t pass, const internal::actors::ActorCell* cell,
    const std::function<std::shared_ptr<ActorRegion>()>& make) {
  const Lock lock(mutex_);
  if (dropped_.contains(pass)) throw_error(ErrorKind::cancelled, kFailedElsewhere);
  auto& region = regions_[{pass, cell}];
  const bool made = !region;
  if (made) region = make();
  return {region, made};
}

std::shared_ptr<ActorRegion> ContextState::find_region(uint64_t pass,
                                                       const internal::actors::ActorCell* cell) const {
  const Lock lock(mutex_);
  auto at = regions_.find({pass, cell});
  return at == regions_.end() ? nullptr : at->second;
}

void ContextState::end_region(uint64_t pass, const internal::actors::ActorCell* cell) {
  decltype(regions_)::node_type node;  // let go after the lock
  const Lock lock(mutex_);
  node = regions_.extract({pass, cell});
}

void ContextState::note_exit(uint64_t pass, WorkerId peer, uint64_t pair, Exit exit) {
  const Lock lock(mutex_);
  exits_[{pass, peer, pair}] = std::move(exit);
}

ContextState::Exit ContextState::find_exit(uint64_t pass, WorkerId peer, uint64_t pair) const {
  const Lock lock(mutex_);
  auto at = exits_.find({pass, peer, pair});
  return at == exits_.end() ? Exit{} : at->second;
}

std::pair<std::shared_ptr<internal::autograd::HookBatch>, bool> ContextState::hook_batch(
    uint64_t pass, const internal::actors::ActorCell* cell) {
  const Lock lock(mutex_);
  if (dropped_.contains(pass)) throw_error(ErrorKind::cancelled, kFailedElsewhere);
  auto& batch = hook_batches_[{pass, cell}];
  const bool made = !batch;
  if (made) batch = std::make_shared<internal::autograd::HookBatch>();
  return {batch, made};
}

std::shared_ptr<internal::autograd::HookBatch> ContextState::end_hook_batch(
    uint64_t pass, const internal::actors::ActorCell* cell) {
  const Lock lock(mutex_);
  auto node = hook_batches_.extract({pass, cell});
  return node.empty() ? nullptr : std::move(node.mapped());
}

void ContextState::drop_pass(uint64_t pass) {
  std::vector<std::shared_ptr<ActorRegion>> gone;  // let go after the lock
  std::map<uint64_t, Sums>::node_type sums;
  std::vector<decltype(sends_)::node_type> sends;
  decltype(waiting_)::node_type waiting;
  std::vector<std::shared_ptr<internal::autograd::HookBatch>> batches;
  {
    const Lock lock(mutex_);
    dropped_.insert(pass);
    for (const auto& [of, batch] : hook_batches_)
      if (of.first == pass) batches.push_back(batch);
    sums = open_.extract(pass);
    if (const auto recorded = recorded_.extract(pass))
      for (uint64_t pair : recorded.mapped()) sends.push_back(sends_.extract(pair));
    forget(pass, gone);
    waiting = waiting_.extract(pass);
  }
  if (waiting)
    for (const auto& [message, one] : waiting.mapped()) one.future.cancel();
  for (const auto& batch : batches) batch->cancel();
}

void ContextState::forget_pass(uint64_t pass) {
  std::vector<std::shared_ptr<ActorRegion>> gone;  // let go after the lock
  const Lock lock(mutex_);
  forget(pass, gone);
}

void ContextState::forget(uint64_t pass, std::vector<std::shared_ptr<ActorRegion>>& gone) {
  for (auto at = hook_batches_.lower_bound({pass, nullptr});
       at != hook_batches_.end() && at->first.first == pass;)
    at = hook_batches_.erase(at);
  for (auto at = exits_.lower_bound({pass, 0, 0}); at != exits_.end() && std::get<0>(at->first) == pass;)
    at = exits_.erase(at);
  for (auto at = regions_.lower_bound({pass, nullptr}); at != regions_.end() && at->first.first == pass;
       at = regions_.erase(at))
    gone.push_back(std::move(at->second));
}

bool ContextState::dropped(uint64_t pass) const {
  const Lock lock(mutex_);
  return dropped_.contains(pass);
}

std::vector<Ref<SendNode>> ContextState::sends() const {
  std::vector<Ref<SendNode>> all;
  const Lock lock(mutex_);
  for (const auto& [pair, send] : sends_) all.push_back(send.node);
  return all;
}

bool ContextState::add_waiting(uint64_t pass, GradMessageId message, const FutureBase& future, Ref<Node> step,
                               std::shared_ptr<internal::actors::ActorCell> cell) {
  const Lock lock(mutex_);
  if (ended_ || dropped_.contains(pass)) return false;
  waiting_[pass].emplace(message, WaitsFor{future, std::move(step), std::move(cell)});
  return true;
}

std::vector<std::string> ContextState::waits() const {
  std::vector<std::string> all;
  const Lock lock(mutex_);
  for (const auto& [pass, waiting] : waiting_)
    for (const auto& [message, one] : waiting)
      all.push_back((one.step ? "the gradients of " + one.step->name() : std::string("hooks")) +
                    (one.cell ? " in " + one.cell->label() : ""));
  return all;
}

void ContextState::end_waiting(uint64_t pass, GradMessageId message) {
  Waiting::node_type gone;  // let go after the lock
  const Lock lock(mutex_);
  const auto at = waiting_.find(pass);
  if (at == waiting_.end()) return;
  gone = at->second.extract(message);
  if (at->second.empty()) waiting_.erase(at);
}

void ContextState::end() {
  decltype(waiting_) all;
  decltype(kept_) kept;  // let go after the lock
  decltype(hook_batches_) batches;
  {
    const Lock lock(mutex_);
    ended_ = true;
    all.swap(waiting_);
    kept.swap(kept_);
    batches.swap(hook_batches_);
  }
  for (const auto& [pass, waiting] : all)
    for (const auto& [message, one] : waiting) one.future.cancel();
  for (const auto& [of, batch] : batches) batch->cancel();
}

std::shared_ptr<void> ContextState::keep(std::type_index type,
                                         const std::function<std::shared_ptr<void>()>& make) {
  const Lock lock(mutex_);
  if (ended_) throw_error(ErrorKind::cancelled, "[context] it has ended");
  auto& kept = kept_[type];
  if (!kept) kept = make();
  return kept;
}

void ContextState::note_sent(uint64_t pass, const std::vector<SentGrad>& sent) {
  if (sent.empty()) return;
  const Lock lock(mutex_);
  for (const SentGrad& s : sent) sent_.emplace_back(pass, s);
  while (sent_.size() > 1000) sent_.pop_front();
}

std::map<uint64_t, std::vector<GradMessageId>> ContextState::sent_to(WorkerId id) const {
  std::map<uint64_t, std::vector<GradMessageId>> out;
  const Lock lock(mutex_);
  for (const auto& [pass, sent] : sent_)
    if (sent.to == id) out[pass].push_back(sent.id);
  return out;
}

void ContextState::add(Sums& sums, const Tensor& leaf, const Tensor& grad) {
  auto& [kept, sum] = sums[leaf.impl()];
  kept = leaf;
  if (sum.defined())
    sum = internal::autograd::sum_gradients(std::move(sum), grad);  // in place only where nobody else has it
  else
    internal::autograd::add_gradient(sum, grad);
}

void ContextState::accumulate(uint64_t pass, const Tensor& leaf, const Tensor& grad) {
  const Lock lock(mutex_);
  if (dropped_.contains(pass)) throw_error(ErrorKind::cancelled, kFailedElsewhere);
  add(open_[pass], leaf, grad);
}

void ContextState::accumulate_kept(uint64_t pass, const Tensor& leaf, Tensor grad) {
  const Lock lock(mutex_);
  if (dropped_.contains(pass)) throw_error(ErrorKind::cancelled, kFailedElsewhere);
  auto& [kept, sum] = open_[pass][leaf.impl()];
  kept = leaf;
  sum = sum.defined() ? internal::autograd::sum_gradients(std::move(sum), std::move(grad)) : std::move(grad);
}

Tensor ContextState::take(uint64_t pass, const Tensor& leaf) {
  Sums::node_type found;  // let go after the lock
  const Lock lock(mutex_);
  if (dropped_.contains(pass)) throw_error(ErrorKind::cancelled, kFailedElsewhere);
  const auto at = open_.find(pass);
  if (at == open_.end()) return {};
  found = at->second.extract(leaf.impl());
  return found ? std::move(found.mapped().second) : Tensor();
}

void ContextState::commit(uint64_t low_watermark) {
  const GradMode on(true);  // sums that have a history keep it
  const Lock lock(mutex_);
  const uint64_t first = internal::owned_number(internal::owner_of_number(low_watermark), 0);
  recorded_.erase(recorded_.lower_bound(first), recorded_.lower_bound(low_watermark));
  for (auto at = open_.lower_bound(first); at != open_.end() && at->first < low_watermark;
       at = open_.erase(at)) {
    if (settled_.empty()) {
      settled_ = std::move(at->second);
      continue;
    }
    for (auto& [impl, sum] : at->second) add(settled_, sum.first, std::exchange(sum.second, {}));
  }
}

Tensor ContextState::gradient(const Tensor& leaf) const {
  const GradMode on(true);
  const Lock lock(mutex_);
  Tensor out;
  const auto take = [&](const Sums& sums) {
    auto at = sums.find(leaf.impl());
    if (at == sums.end()) return;
    out = out.defined() ? internal::autograd::sum_gradients(std::move(out), at->second.second)
                        : at->second.second;
  };
  take(settled_);
  for (const auto& [pass, sums] : open_) take(sums);
  return out;
}

std::pair<uint64_t, uint64_t> ContextState::begin_pass(const std::function<uint64_t()>& next) {
  const Lock lock(mutex_);  // no pass gets a number below the low watermark of another
  const uint64_t pass = next();
  running_.insert(pass);
  return {pass, *running_.begin()};
}

void ContextState::end_pass(uint64_t pass) {
  const Lock lock(mutex_);
  running_.erase(pass);
}

std::vector<uint64_t> ContextState::running() const {
  const Lock lock(mutex_);
  return {running_.begin(), running_.end()};
}

Tensor ContextState::exchange_gradient(const Tensor& leaf, Tensor grad) {
  const GradMode on(true);
  const Lock lock(mutex_);
  Tensor out;
  const auto take = [&](Sums& sums) {
    auto found = sums.extract(leaf.impl());
    if (!found) return;
    Tensor& sum = found.mapped().second;
    out = out.defined() ? internal::autograd::sum_gradients(std::move(out), sum) : std::move(sum);
  };
  take(settled_);
  for (auto& [pass, sums] : open_) take(sums);
  if (grad.defined()) settled_[leaf.impl()] = {leaf, std::move(grad)};
  return out;
}

void ContextState::set_inputs(std::shared_ptr<internal::actors::ActorCell> cell, Tensors inputs) {
  const Lock lock(mutex_);
  inputs_[std::move(cell)].swap(inputs);  // those of before go after the lock
}

Tensors ContextState::inputs(const std::shared_ptr<internal::actors::ActorCell>& cell) const {
  const Lock lock(mutex_);
  auto at = inputs_.find(cell);
  return at == inputs_.end() ? Tensors() : at->second;
}

void ContextState::add_peer(WorkerId id) {
  const Lock lock(mutex_);
  peers_.insert(id);
}

std::vector<WorkerId> ContextState::peers() const {
  const Lock lock(mutex_);
  return {peers_.begin(), peers_.end()};
}

}  // namespace troupe::autograd
