// The CPU's kernels of all operators. Each file of kernels ends with its table.
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops {
namespace on_cpu {

KernelTable activation_kernels(), arithmetic_kernels(), attention_kernels(), batch_norm_kernels(),
    cast_kernels(), comparison_kernels(), conv_kernels(), cross_entropy_kernels(), cumulative_kernels(),
    division_kernels(), dropout_kernels(), gradient_sizes_kernels(), index_kernels(), inplace_kernels(),
    layer_norm_kernels(), logic_kernels(), loss_kernels(), matmul_kernels(), min_max_kernels(),
    nonzero_kernels(), optimizer_kernels(), pooling_kernels(), power_kernels(), reduce_kernels(),
    softmax_kernels(), sort_kernels(), trigonometry_kernels(), unary_kernels(), view_kernels(),
    where_kernels();

}  // namespace on_cpu

std::span<const KernelTable> cpu_kernels() {
  using namespace on_cpu;
  static const KernelTable kTables[] = {
      activation_kernels(), arithmetic_kernels(), attention_kernels(),    batch_norm_kernels(),
      cast_kernels(),       comparison_kernels(), conv_kernels(),         cross_entropy_kernels(),
      cumulative_kernels(), division_kernels(),   dropout_kernels(),      gradient_sizes_kernels(),
      index_kernels(),      inplace_kernels(),    layer_norm_kernels(),   logic_kernels(),
      loss_kernels(),       matmul_kernels(),     min_max_kernels(),      nonzero_kernels(),
      optimizer_kernels(),  pooling_kernels(),    power_kernels(),        reduce_kernels(),
      softmax_kernels(),    sort_kernels(),       trigonometry_kernels(), unary_kernels(),
      view_kernels(),       where_kernels()};
  return kTables;
}

}  // namespace troupe::ops
