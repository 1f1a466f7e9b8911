#include "autograd/dist/part.h"

#include <algorithm>

#include "actors/codec.h"

namespace troupe::autograd {

DistEngine::DistEngine(actors::Worker& worker) : worker_(worker), outside_(worker.runtime().make_mailbox()) {}

DistEngine& DistEngine::install(actors::Worker& worker) {
  auto owned = std::unique_ptr<DistEngine>(new DistEngine(worker));
  DistEngine* engine = owned.get();
  worker.add_interceptor(std::move(owned));
  worker.add_service(kBackward, [engine](const auto& call) { engine->on_message(Kind::gradient, call); });
  worker.add_service(kReach, [engine](const auto& call) { engine->on_message(Kind::reach, call); });
  worker.add_service(kDrop, [engine](const auto& call) { engine->on_drop(call); });
  worker.add_service(kReport, [engine](const auto& call) { engine->on_report(call); });
  worker.add_service(kRelease, [engine](const auto& call) { engine->on_release(call); });
  worker.add_metrics([engine](actors::Worker::Metrics& m) {
    std::lock_guard lock(engine->mutex_);
    m["contexts"] = static_cast<int64_t>(engine->contexts_.size());
    m["backward_passes"] = static_cast<int64_t>(engine->passes_.size());
    m["send_nodes"] = *engine->send_nodes_;
    m["receive_nodes"] = *engine->receive_nodes_;
    m["gradient_messages_sent"] = engine->gradient_messages_;
    m["reach_messages_sent"] = engine->reach_messages_;
  });
  return *engine;
}

// ---- contexts

uint64_t DistEngine::new_context() {
  const uint64_t id = (uint64_t{worker_.id()} << 40) | ++last_context_;
  state(id);
  return id;
}

DistEngine::StatePtr DistEngine::state(uint64_t context) {
  std::lock_guard lock(mutex_);
  if (stopped_)
    throw_error(ErrorKind::cancelled, "[autograd] worker " + worker_.name() + " is shutting down");
  auto& found = contexts_[context];
  if (!found) {
    if (std::find(ended_.begin(), ended_.end(), context) != ended_.end()) {
      contexts_.erase(context);
      throw_error(ErrorKind::cancelled, "[autograd] the context of this call has ended");
    }
    found = std::make_shared<ContextState>();
  }
  return found;
}

DistEngine::StatePtr DistEngine::find_state(uint64_t context) {
  std::lock_guard lock(mutex_);
  auto at = contexts_.find(context);
  return at == contexts_.end() ? nullptr : at->second;
}

Future<void> DistEngine::release(uint64_t context, bool wait) {
  StatePtr state;
  {
    std::lock_guard lock(mutex_);
    auto node = contexts_.extract(context);
    if (node.empty()) return Future<void>::ready({});
    state = std::move(node.mapped());
    ended_[next_ended_++ % ended_.size()] = context;
  }
  abandon(context, Error(ErrorKind::cancelled, "[backward] the context ended while the pass was running"));
  FrameScope neutral({&worker_});
  std::vector<Future<Value>> told;
  for (WorkerId peer : state->peers())
    if (peer != originator_of(context) && !worker_.members().loss(peer))
      told.push_back(worker_.call_service(peer, kRelease, {number(context)}, {.one_way = !wait}));
  Promise<void> done;
  struct Left {
    std::atomic<size_t> n;
  };
  auto left = std::make_shared<Left>();
  left->n = told.size() + 1;
  auto one = [done, left] {
    if (--left->n == 0) done.set();
  };
  for (auto& t : told)
    t.on_ready([one](const Result<Value>&) { one(); });  // a lost peer has forgotten it too
  one();
  return done.future();
}

void DistEngine::on_release(const Ref<actors::Invocation>& call) {
  auto [context] = actors::ListCodec<uint64_t>::from(std::move(call->call().args), kRelease);
  release(context, call->call().id != 0).on_ready([call](const Result<void>&) { call->complete(Value()); });
}

Tensor DistEngine::gradient(uint64_t context, const Tensor& leaf) {
  auto state = find_state(context);
  return state ? state->gradient(leaf) : Tensor();
}

// ---- the end of others, and of this worker

void DistEngine::worker_lost(WorkerId id, const Error& why) {
  std::vector<uint64_t> numbers;
  std::vector<StatePtr> orphans;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, pass] : passes_) numbers.push_back(number);
    for (auto at = contexts_.begin(); at != contexts_.end();) {
      if (originator_of(at->first) != id) {
        ++at;
        continue;
      }
      ended_[next_ended_++ % ended_.size()] = at->first;
      orphans.push_back(std::move(at->second));
      at = contexts_.erase(at);
    }
  }
  for (uint64_t n : numbers) update(n, [&](Pass& p) { p.termination.lost(id, why); });
}

void DistEngine::stop() {
  std::unordered_map<uint64_t, StatePtr> contexts;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    contexts.swap(contexts_);
  }
  fail_passes([](const Pass&) { return true; },
              Error(ErrorKind::cancelled, "[backward] worker " + worker_.name() + " is shutting down"));
  std::unique_lock lock(mutex_);
  outside_idle_.wait(lock, [&] { return outside_jobs_ == 0; });
}

}  // namespace troupe::autograd
