// NCCL as the library for operations of several GPUs.
#include <memory>

#include "collective/nccl/cuda/nccl_launcher.h"
#include "collective/nccl/cuda/nccl_library.h"
#include "core/cuda/install.h"
#include "core/cuda/runtime.h"

namespace troupe::internal::collective {

namespace {

// An event behind what the calling thread's stream has now.
class CudaInputs final : public DeviceInputs {
 public:
  explicit CudaInputs(Device device) {
    const cuda::OnStream stream(device);
    cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event", device);
    const cudaError_t e = cudaEventRecord(event_, stream);
    if (e == cudaSuccess) return;
    cudaEventDestroy(event_);
    cuda::check(e, "recording an event", device);
  }
  ~CudaInputs() override { cudaEventDestroy(event_); }
  bool are_there() const override {
    if (cudaEventQuery(event_) == cudaSuccess) return true;
    cudaGetLastError();
    return false;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class NcclAsLibrary final : public DeviceLibrary {
 public:
  int version() const override { return Nccl::get() ? Nccl::get()->version : 0; }
  std::string why() const override { return Nccl::why(); }
  bool has(Device device) const override { return device.kind == kCuda; }
  std::string device_name(Device device) const override {
    char name[32] = {};
    cuda::check(cudaDeviceGetPCIBusId(name, sizeof name, device.index), "asking where it is", device);
    return name;
  }
  std::unique_ptr<DeviceInputs> inputs_of(const DeviceWork& work, Device device) const override {
    for (const DeviceStep& s : work.steps) {
      if (s.from.defined()) s.from.storage()->used_here();
      if (s.to.defined()) s.to.storage()->written_here();
    }
    auto inputs = std::make_unique<CudaInputs>(device);
    for (const DeviceStep& s : work.steps) {  // others do not wait for what comes later on this stream
      if (s.from.defined()) s.from.storage()->leaves();
      if (s.to.defined()) s.to.storage()->leaves();
    }
    return inputs;
  }
  std::unique_ptr<Launcher> make_launcher(WorkerDevice here, Device device) const override {
    return std::make_unique<NcclLauncher>(*Nccl::get(), here, device);
  }
};

void install_nccl() {
  static constinit const NcclAsLibrary library;
  set_device_library(library);
}

}  // namespace

}  // namespace troupe::internal::collective

// The build asks the linker for this name, so that a program that links the library has it.
extern "C" const bool troupe_collective_nccl;
const bool troupe_collective_nccl = (troupe::internal::collective::install_nccl(), true);
