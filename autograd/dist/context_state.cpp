#include "autograd/dist/context_state.h"

#include "autograd/accumulate.h"
#include "core/error.h"

namespace troupe::autograd {

bool ContextState::add_send(uint64_t pair, Send send) {
  std::lock_guard lock(mutex_);
  overlap_.add(send.node->next());
  sends_.emplace(pair, std::move(send));
  return overlap_.found();
}

void ContextState::drop_send(uint64_t pair) {
  std::unordered_map<uint64_t, Send>::node_type node;  // let go after the lock
  std::lock_guard lock(mutex_);
  node = sends_.extract(pair);
}

ContextState::Send ContextState::find_send(uint64_t pair) const {
  std::lock_guard lock(mutex_);
  auto at = sends_.find(pair);
  return at == sends_.end() ? Send{} : at->second;
}

bool ContextState::shared() const {
  std::lock_guard lock(mutex_);
  return overlap_.found();
}

void ContextState::note_shared() {
  std::lock_guard lock(mutex_);
  overlap_.note();
}

bool ContextState::shared_by(const std::vector<Edge>& roots) const {
  std::lock_guard lock(mutex_);
  return overlap_.met_by(roots);
}

std::shared_ptr<Region> ContextState::region(uint64_t pass, const actors::ActorCell* cell,
                                             RunOptions options) {
  std::lock_guard lock(mutex_);
  if (dropped_.contains(pass)) throw_error(ErrorKind::cancelled, "[backward] the pass has failed elsewhere");
  auto& region = regions_[{pass, cell}];
  if (!region) region = std::make_shared<Region>(options);
  return region;
}

std::shared_ptr<Region> ContextState::find_region(uint64_t pass, const actors::ActorCell* cell) const {
  std::lock_guard lock(mutex_);
  auto at = regions_.find({pass, cell});
  return at == regions_.end() ? nullptr : at->second;
}

void ContextState::end_region(uint64_t pass, const actors::ActorCell* cell) {
  decltype(regions_)::node_type node;  // let go after the lock
  std::lock_guard lock(mutex_);
  node = regions_.extract({pass, cell});
}

void ContextState::drop_pass(uint64_t pass) {
  std::vector<std::shared_ptr<Region>> gone;  // let go after the lock
  std::lock_guard lock(mutex_);
  dropped_.insert(pass);
  for (auto at = regions_.lower_bound({pass, nullptr}); at != regions_.end() && at->first.first == pass;
       at = regions_.erase(at))
    gone.push_back(std::move(at->second));
}

bool ContextState::dropped(uint64_t pass) const {
  std::lock_guard lock(mutex_);
  return dropped_.contains(pass);
}

void ContextState::note_sent(uint64_t pass, const std::vector<SentGrad>& sent) {
  if (sent.empty()) return;
  std::lock_guard lock(mutex_);
  for (const SentGrad& s : sent) sent_.emplace_back(pass, s);
  while (sent_.size() > 1000) sent_.pop_front();
}

std::map<uint64_t, std::vector<GradMessageId>> ContextState::sent_to(WorkerId id) const {
  std::map<uint64_t, std::vector<GradMessageId>> out;
  std::lock_guard lock(mutex_);
  for (const auto& [pass, sent] : sent_)
    if (sent.to == id) out[pass].push_back(sent.id);
  return out;
}

void ContextState::accumulate(const Tensor& leaf, const Tensor& grad) {
  std::lock_guard lock(mutex_);
  auto& [kept, sum] = grads_[leaf.impl()];
  kept = leaf;
  if (sum.defined())
    sum = sum_gradients(std::move(sum), grad);  // in place only where nobody else has it
  else
    add_gradient(sum, grad);
}

Tensor ContextState::gradient(const Tensor& leaf) const {
  std::lock_guard lock(mutex_);
  auto at = grads_.find(leaf.impl());
  return at == grads_.end() ? Tensor() : at->second.second;
}

void ContextState::add_peer(WorkerId id) {
  std::lock_guard lock(mutex_);
  peers_.insert(id);
}

std::vector<WorkerId> ContextState::peers() const {
  std::lock_guard lock(mutex_);
  return {peers_.begin(), peers_.end()};
}

}  // namespace troupe::autograd
