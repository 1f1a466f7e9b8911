// The functions of cuBLASLt that products call. The library is loaded at the first product and not linked, so
// that programs start on machines that do not have it.
#pragma once
#include <cublasLt.h>

#include "core/memory/device.h"

namespace troupe::ops::on_cuda {

struct CublasLt {
#define TROUPE_CUBLASLT_FUNCTIONS(f) \
  f(Create);                         \
  f(MatmulDescCreate);               \
  f(MatmulDescDestroy);              \
  f(MatmulDescSetAttribute);         \
  f(MatrixLayoutCreate);             \
  f(MatrixLayoutDestroy);            \
  f(MatrixLayoutSetAttribute);       \
  f(MatmulPreferenceCreate);         \
  f(MatmulPreferenceDestroy);        \
  f(MatmulPreferenceSetAttribute);   \
  f(MatmulAlgoGetHeuristic);         \
  f(Matmul)
#define TROUPE_DECLARE(name) decltype(&cublasLt##name) name
  TROUPE_CUBLASLT_FUNCTIONS(TROUPE_DECLARE);
#undef TROUPE_DECLARE

  /// Throws `failed`, each time, with where it was looked for if it cannot be loaded.
  static const CublasLt& get();
};

/// The handle of a device, made once, for all threads. The calling thread's device is the given one
/// afterwards.
cublasLtHandle_t cublas_handle(Device device);

}  // namespace troupe::ops::on_cuda
