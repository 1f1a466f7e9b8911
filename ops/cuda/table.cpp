// The CUDA kernels of all operators. Each file of kernels ends with its table.
#include "core/cuda/install.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops {
namespace on_cuda {

KernelTable arithmetic_kernels(), attention_kernels(), conv_kernels(), copy_kernels(), embedding_kernels(),
    gradient_sizes_kernels(), index_kernels(), inplace_kernels(), line_kernels(), loss_kernels(),
    matmul_kernels(), norm_kernels(), optimizer_kernels(), pooling_kernels(), reduce_kernels(),
    softmax_kernels(), sort_kernels(), trigonometry_kernels(), unary_kernels();

}  // namespace on_cuda

namespace {

std::span<const KernelTable> cuda_kernels() {
  using namespace on_cuda;
  static const KernelTable kTables[] = {
      arithmetic_kernels(), attention_kernels(),      conv_kernels(),   copy_kernels(),
      embedding_kernels(),  gradient_sizes_kernels(), index_kernels(),  inplace_kernels(),
      line_kernels(),       loss_kernels(),           matmul_kernels(), norm_kernels(),
      optimizer_kernels(),  pooling_kernels(),        reduce_kernels(), softmax_kernels(),
      sort_kernels(),       trigonometry_kernels(),   unary_kernels()};
  return kTables;
}

}  // namespace
}  // namespace troupe::ops

/// Runs before main(): a program that has this folder knows the kind "cuda".
extern "C" const bool troupe_device_cuda =
    (troupe::install_cuda(), troupe::ops::set_kernels(troupe::Device::Kind{1}, troupe::ops::cuda_kernels()),
     true);
