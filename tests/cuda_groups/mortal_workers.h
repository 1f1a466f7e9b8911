// Workers of this process with a simulated GPU each, some of which die at an event of NCCL.
#pragma once
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/runtime/runtime.h"
#include "actors/worker/worker.h"
#include "collective/engine.h"
#include "core/memory/backend.h"
#include "net/sim/network.h"
#include "rref/here.h"
#include "tests/cuda/gpus.h"
#include "tests/support/eventually.h"
#include "tests/support/sim_cuda/nccl_sim.h"
#include "troupe/cluster/worker_stack.h"

namespace troupe::testing {

/// What the others' NCCL says of the end of a process: nothing; something after they have heard of it; or it
/// is the first to say so.
enum class Death : uint8_t { unnoticed, noticed_later, noticed_first };

class MortalWorkers {
 public:
  explicit MortalWorkers(WorkerId count, const internal::actors::TypeRegistry& hosting) {
    sim_cuda::reset_nccl();  // the threads of other workers have used the devices
    for (WorkerId id = 0; id < count; ++id) {
      used_before_.push_back(used(id));
      stacks_.push_back(
          std::make_unique<WorkerStack>(internal::actors::WorkerOptions{.id = id,
                                                                        .name = name(id),
                                                                        .host = "here",
                                                                        .hosting = hosting,
                                                                        .runtime = runtime_,
                                                                        .device_maps = maps(id, count)}));
    }
    const std::string token = "a token for those who die";
    connect_in_memory(stacks_, *messages_, token);
    for (WorkerId id = 0; id < count; ++id) {
      auto& devices = internal::collective::GroupEngine::of(worker(id)).devices();
      devices.set_transport([this, id, token](internal::net::Events& events) {
        return turns_->make_transport(name(id), {.self = {id, name(id)}, .token = token, .limits = {}},
                                      events);
      });
      (void)devices.addresses();
    }
  }
  ~MortalWorkers() {
    for (auto& stack : stacks_) stack->worker().stop();
    for (auto& stack : stacks_) stack->stop_listening();
    stacks_.clear();
    sim_cuda::reset_nccl();
  }

  size_t count() const { return stacks_.size(); }
  internal::actors::Worker& worker(WorkerId id) { return stacks_[id]->worker(); }
  /// An actor, as w0 refers to it.
  template <class T, class... A>
  RRef<T> spawn(WorkerId on, A... args) {
    return Here(stacks_[0]->references()).template spawn<T>(on, std::move(args)...);
  }

  /// The worker dies after the next `events` of NCCL (NcclCounters::events): in that moment it falls silent,
  /// and its GPU does nothing more with others'. Its own threads may go on, which nobody hears of.
  void will_die(WorkerId id, uint64_t events, Death how) {
    ends_.push_back(std::make_shared<End>(id, how));
    die_at(sim_cuda::nccl_counters().events + events, ends_.back());
  }
  /// Whether all that are to die have, of which nobody has heard yet.
  bool have_fallen_silent() const {
    return std::ranges::all_of(ends_, [](const auto& end) { return end->silent && !end->told; });
  }
  /// Until `is_over()`, or all that are to die have. The others hear of each as its connections break.
  /// Whether one died before it was over.
  template <class F>
  bool let_die(F&& is_over) {
    size_t told = 0;
    (void)eventually([&] {
      told = 0;
      for (const auto& end : ends_) {
        if (end->silent && !end->told) tell(*end);
        told += end->told;
      }
      return told == ends_.size() || is_over();
    });
    for (const auto& end : ends_) {
      if (!end->silent) die_at(0, end);
      sim_cuda::run_what_can();
      if (!end->told) tell(*end);
    }
    return told > 0;
  }
  /// Of workers below `living`: nothing goes on, nothing is kept, and all memory of their GPUs is free again.
  bool nothing_is_left(WorkerId living) {
    return eventually([&] { return left(living).empty(); });
  }
  /// What is, as text.
  std::string left(WorkerId living) {
    std::string text;
    for (WorkerId id = 0; id < living; ++id) {
      const auto metrics = worker(id).metrics();
      for (const char* what : {"collectives", "early_collectives", "device_collectives", "device_turns",
                               "parked_packets", "pending_calls"})
        if (const int64_t n = metrics.at(what))
          text += name(id) + " " + what + " " + std::to_string(n) + "; ";
      if (used(id) != used_before_[id])
        text += name(id) + " uses " + std::to_string(used(id) - used_before_[id]) + " bytes; ";
    }
    return text;
  }

 private:
  struct End {
    End(WorkerId who, Death how) : who(who), how(how) {}
    const WorkerId who;
    const Death how;
    std::atomic<bool> silent{false};
    bool told = false;
  };

  static std::string name(WorkerId id) { return "w" + std::to_string(id); }
  static Device gpu(WorkerId id) { return {kCuda, static_cast<int8_t>(id)}; }
  static size_t used(WorkerId id) { return allocator_stats(gpu(id)).in_use; }
  static std::map<std::string, internal::net::DeviceMap> maps(WorkerId id, WorkerId count) {
    std::map<std::string, internal::net::DeviceMap> all;
    for (WorkerId other = 0; other < count; ++other)
      if (other != id)
        all.emplace(name(other),
                    internal::net::DeviceMap({{gpu(id), gpu(other)}}, name(id) + " to " + name(other)));
    return all;
  }
  void die_at(uint64_t event, const std::shared_ptr<End>& end) {
    const auto fall_silent = [end, messages = messages_, turns = turns_] {
      if (end->silent) return;
      messages->silence(name(end->who));
      turns->silence(name(end->who));
      end->silent = true;
    };
    sim_cuda::kill_gpu_at(event, static_cast<int>(end->who), end->how == Death::noticed_first, fall_silent);
  }
  void tell(End& end) {
    end.told = true;
    messages_->crash(name(end.who));
    turns_->crash(name(end.who));
    if (end.how == Death::noticed_later) sim_cuda::kill_gpu(static_cast<int>(end.who), true);
  }

  const std::shared_ptr<internal::actors::Runtime> runtime_ = internal::actors::Runtime::make();
  // For as long as a thread of NCCL may end somebody.
  const std::shared_ptr<internal::net::Network> messages_ = std::make_shared<internal::net::Network>(),
                                                turns_ = std::make_shared<internal::net::Network>();
  std::vector<size_t> used_before_;
  std::vector<std::shared_ptr<End>> ends_;
  WorkerStacks stacks_;
};

/// Whether an operation with workers of which those from w2 on may be dead may end so: it names one, whoever
/// was the first to say that something is wrong.
inline bool is_of_death(const Error& e) {
  return e.kind() == ErrorKind::disconnected && (e.worker() == "w2" || e.worker() == "w3");
}

/// What seed `n` chooses, of a program with so many events of NCCL: in the end, everything.
struct Fate {
  Fate(uint64_t seed, uint64_t events)
      : event(1 + seed * 10'007 % (events - events % 3 + 1)),
        how(static_cast<Death>(seed % 3)),
        later(seed * 37 % 61) {}
  uint64_t event;
  Death how;
  uint64_t later;  ///< so many events after it the next one dies
};

}  // namespace troupe::testing
