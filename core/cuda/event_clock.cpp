#include "core/cuda/event_clock.h"

#include <utility>

#include "core/cuda/runtime.h"

namespace troupe::cuda {
namespace {

class EventClock final : public DeviceClock {
 public:
  explicit EventClock(Device device) : device_(device) {
    use(device_);
    check(cudaEventCreateWithFlags(&last_, cudaEventDefault), "making an event", device_);
    if (const cudaError_t e = cudaEventCreateWithFlags(&next_, cudaEventDefault); e != cudaSuccess) {
      cudaEventDestroy(last_);
      fail(e, "making an event", device_);
    }
    record(last_);
  }
  ~EventClock() override {
    cudaEventDestroy(last_);
    cudaEventDestroy(next_);
  }
  double lap() override {
    record(next_);
    check(cudaEventSynchronize(next_), "waiting for an event", device_);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, last_, next_), "reading a time", device_);
    std::swap(last_, next_);
    return ms * 1e-3;
  }

 private:
  void record(cudaEvent_t event) {
    const OnStream stream(device_);
    check(cudaEventRecord(event, stream), "recording an event", device_);
  }
  const Device device_;
  cudaEvent_t last_ = nullptr, next_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceClock> event_clock(Device device) { return std::make_unique<EventClock>(device); }

}  // namespace troupe::cuda
