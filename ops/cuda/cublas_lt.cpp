#include "ops/cuda/cublas_lt.h"

#ifndef TROUPE_SIM_CUDA
#include <dlfcn.h>
#endif

#include <array>
#include <mutex>
#include <string>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/cuda/runtime.h"

namespace troupe::ops::on_cuda {
namespace {

#ifndef TROUPE_SIM_CUDA
// Where the linker finds it, with the number of this toolkit; else in the toolkit's own folder.
void* open_library(std::string& complaints) {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  for (const std::string& path : {name, std::string(TROUPE_CUDA_LIBRARIES "/") + name}) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    complaints += (complaints.empty() ? "" : "; ") + std::string(dlerror());
  }
  return nullptr;
}
#endif

}  // namespace

const CublasLt& CublasLt::get() {
  static const CublasLt all = [] {
    CublasLt f{};
#ifdef TROUPE_SIM_CUDA
#define TROUPE_FIND(name) f.name = &cublasLt##name
    TROUPE_CUBLASLT_FUNCTIONS(TROUPE_FIND);
#else
    std::string complaints;
    void* const library = open_library(complaints);
    if (!library)
      throw_error(ErrorKind::failed,
                  "[cuda] products on GPUs need cuBLASLt, which cannot be loaded; put the folder of "
                  "libcublasLt.so." +
                      std::to_string(CUBLAS_VER_MAJOR) + " into LD_LIBRARY_PATH: " + complaints);
#define TROUPE_FIND(name)                                                               \
  if (!(f.name = reinterpret_cast<decltype(f.name)>(dlsym(library, "cublasLt" #name)))) \
  throw_error(ErrorKind::failed, "[cuda] the cuBLASLt that was loaded has no cublasLt" #name)
    TROUPE_CUBLASLT_FUNCTIONS(TROUPE_FIND);
#endif
#undef TROUPE_FIND
    return f;
  }();
  return all;
}

cublasLtHandle_t cublas_handle(Device device) {
  constexpr size_t kMostDevices = 64;
  static constinit troupe::internal::Mutex mutex;
  static constinit std::array<cublasLtHandle_t, kMostDevices> handles{};  // live as long as the process
  const CublasLt& lt = CublasLt::get();
  cuda::use(device);
  std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles.at(static_cast<size_t>(device.index));
  if (handle) return handle;
  if (const cublasStatus_t status = lt.Create(&handle); status != CUBLAS_STATUS_SUCCESS)
    throw_error(ErrorKind::failed, "[cuda] starting cuBLASLt on " + device.str() + ": status " +
                                       std::to_string(static_cast<int>(status)));
  return handle;
}

}  // namespace troupe::ops::on_cuda
