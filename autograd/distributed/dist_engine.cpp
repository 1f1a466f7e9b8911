#include "autograd/distributed/dist_engine.h"

namespace troupe::autograd {

DistEngine::DistEngine(internal::actors::Worker& worker)
    : worker_(worker),
      outbox_(worker),
      contexts_(worker, [this](const ContextState& state, const Error& why) { passes_.end(state, why); }),
      recorder_(worker, contexts_),
      group_gradients_(worker, contexts_, recorder_),
      runner_(outbox_, contexts_, [this](const auto&... report) { passes_.take_report(report...); }),
      passes_(outbox_, contexts_, runner_) {
  worker.add_metrics([this](internal::actors::Worker::Metrics& m) { add_metrics(m); });
}

DistEngine& DistEngine::install(internal::actors::Worker& worker) {
  auto owned = std::unique_ptr<DistEngine>(new DistEngine(worker));
  DistEngine& engine = *owned;
  worker.add_extension(std::move(owned));
  return engine;
}

void DistEngine::add_metrics(internal::actors::Worker::Metrics& m) const {
  m["contexts"] = static_cast<int64_t>(contexts_.size());
  m["backward_passes"] = static_cast<int64_t>(passes_.size());
  m["send_nodes"] = recorder_.send_nodes();
  m["receive_nodes"] = recorder_.receive_nodes();
  m["gradient_messages_sent"] = outbox_.sent(PassPhase::gradient);
  m["reach_messages_sent"] = outbox_.sent(PassPhase::reach);
  m["want_messages_sent"] = outbox_.sent(PassPhase::want);
}

void DistEngine::worker_lost(WorkerId id, const Error& why) {
  const Contexts::Lost lost = contexts_.worker_lost(id);
  passes_.worker_lost(id, why);
  for (const auto& state : lost.ended) {
    passes_.end(*state, why);
    state->end();
    runner_.tell_broken(*state, id, why);  // the pass may be another worker's
  }
  for (const auto& state : lost.others) runner_.tell_broken(*state, id, why);
}

void DistEngine::stop() {
  const auto contexts = contexts_.stop();  // they go when nobody works in them
  passes_.fail_all(Error(ErrorKind::cancelled, "[backward] worker " + worker_.name() + " is shutting down"));
  for (const auto& [number, state] : contexts) state->end();
  runner_.wait_until_idle();
}

}  // namespace troupe::autograd
