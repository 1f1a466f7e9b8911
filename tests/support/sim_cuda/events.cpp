// Events of CUDA's runtime: what streams and the host wait for, and when they were reached.
#include <algorithm>
#include <chrono>

#include "tests/support/sim_cuda/runtime_call.h"

using namespace sim_cuda;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return call([&](Machine& m) {
    *event = new_handle<cudaEvent_t>(m);
    m.events[*event] = std::make_shared<EventState>();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call(
      [&](Machine& m) { return m.events.erase(event) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    const auto found = m.events.find(event);
    if (found == m.events.end()) return cudaErrorInvalidResourceHandle;
    ++m.counters.records;
    const auto state = found->second;
    const uint64_t number = ++state->asked;
    state->last = std::make_shared<sim_cuda::Clock>();
    m.add(s, {"cudaEventRecord",
              [state, number] {
                state->reached = std::max(state->reached, number);
                state->at = std::chrono::steady_clock::now();
              },
              nullptr, 0, true, state->last});
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    const auto found = m.events.find(event);
    if (found == m.events.end()) return cudaErrorInvalidResourceHandle;
    ++m.counters.waits;
    m.add(s, {"cudaStreamWaitEvent", nullptr, found->second, found->second->asked, false, nullptr,
              found->second->last});
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Machine& m) {
    const auto found = m.events.find(event);
    if (found == m.events.end()) return cudaErrorInvalidResourceHandle;
    if (found->second->reached < found->second->asked) m.run_some();
    if (found->second->reached < found->second->asked) return cudaErrorNotReady;
    if (found->second->last) m.host_waited_for(*found->second->last);
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return call([&](Machine& m) {
    const auto a = m.events.find(from), b = m.events.find(to);
    if (a == m.events.end() || b == m.events.end()) return cudaErrorInvalidResourceHandle;
    for (const auto& e : {a->second, b->second})
      if (e->reached < e->asked) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(b->second->at - a->second->at).count();
    ++m.counters.times;
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Machine& m) {
    const auto found = m.events.find(event);
    if (found == m.events.end()) return cudaErrorInvalidResourceHandle;
    ++m.counters.synchronizations;
    const auto state = found->second;
    const auto last = state->last;
    if (m.run_until([&, until = state->asked] { return state->reached >= until; }, "cudaEventSynchronize") &&
        last)
      m.host_waited_for(*last);
    return cudaSuccess;
  });
}

}  // extern "C"
