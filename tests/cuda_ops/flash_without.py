#!/usr/bin/env python3
"""flash_without.py OUT.cu: attention on the matrix unit (ops/cuda/flash*) with switches (without.py, flash_faults_test.cpp)."""
import sys

import without

PARTS = ["flash_tiles.cuh", "flash_forward.cuh", "flash_grad.cuh", "flash_launch.cuh", "flash.cu", "flash_grad.cu"]
RULES = [
    ("a key tile is there before it is read", "mu::wait_for_copies<0>(); __syncthreads(); part(values, j, tv);",
     "if (!OUT) mu::wait_for_copies<0>(); __syncthreads(); part(values, j, tv);"),
    ("all have their part of a key tile", "__syncthreads(); part(values, j, tv);", "if (!OUT) __syncthreads(); part(values, j, tv);"),
    ("a value tile is there before it is read", "mu::wait_for_copies<0>(); __syncthreads(); if (j > 0) part(keys, j - 1, tk);",
     "if (!OUT) mu::wait_for_copies<0>(); __syncthreads(); if (j > 0) part(keys, j - 1, tk);"),
    ("nobody reads a key tile any more when the next one comes",
     "__syncthreads(); if (j > 0) part(keys, j - 1, tk);", "if (!OUT) __syncthreads(); if (j > 0) part(keys, j - 1, tk);"),
    ("a query sees no later key", "if (8 * n + 2 * t + e >= seen) score = -INFINITY;",
     "if (8 * n + 2 * t + e >= seen + OUT) score = -INFINITY;"),
    ("older sums shrink", "sums.x[m][n][2 * h + e] *= shrink;", "sums.x[m][n][2 * h + e] *= OUT ? 1 : shrink;"),
    ("weights are beside the largest score", "top = high;", "top = OUT ? top : high;"),
    ("the gradient of keys waits for queries", "mu::wait_for_copies<0>(); __syncthreads(); if (n == begin)",
     "if (!OUT) mu::wait_for_copies<0>(); __syncthreads(); if (n == begin)"),
    ("all have their part of a tile of queries", "__syncthreads(); if (n == begin)", "if (!OUT) __syncthreads(); if (n == begin)"),
    ("a key is seen by no earlier query", "+ 16 * m + 8 * h + g > query) x = 0;", "+ 16 * m + 8 * h + g > query + OUT) x = 0;"),
    ("tiles of queries take turns", "return stages + (n & 1) * kStage; }; const auto fetch = [&](int n) { const int64_t i0",
     "return stages + (OUT ? 0 : n & 1) * kStage; }; const auto fetch = [&](int n) { const int64_t i0"),
    ("the gradient of queries waits for keys", "mu::wait_for_copies<0>(); __syncthreads(); if (n == 0)",
     "if (!OUT) mu::wait_for_copies<0>(); __syncthreads(); if (n == 0)"),
    ("all have their part of a tile of keys", "__syncthreads(); if (n == 0)", "if (!OUT) __syncthreads(); if (n == 0)"),
    ("a query gets nothing of a later key", "if (!all && 8 * j + 2 * t + e >=", "if (!all && 8 * j + 2 * t + e - OUT >="),
    ("delta has the gradient of the logarithm", "if (there) delta[m][h] -= c.g_logs[number];", "if (there && !OUT) delta[m][h] -= c.g_logs[number];"),
    ("rows are whole before they are written", "__syncwarp(); constexpr int kChunks", "if (!OUT) __syncwarp(); constexpr int kChunks"),
    ("A has its upper rows first", "first + (l >> 3 & 1) * 8 + (l & 7), 2 * k + (l >> 4)));",
     "first + (OUT ? l >> 4 : l >> 3 & 1) * 8 + (l & 7), 2 * k + (OUT ? l >> 3 & 1 : l >> 4)));"),
    ("B has its rows in order", "16 * k + (l >> 3 & 1) * 8 + (l & 7), 2 * n + (l >> 4)));",
     "16 * k + (OUT ? l >> 4 : l >> 3 & 1) * 8 + (l & 7), 2 * n + (OUT ? l >> 3 & 1 : l >> 4)));"),
    ("a warp reads from all banks", "c ^ (r & 7)", "(OUT ? c : c ^ (r & 7))"),
    ("what is behind the last row is zeros", "inside_ && row_ + r < rows", "inside_ && (OUT ? row_ + r <= rows : row_ + r < rows)"),
    ("what is behind the last column is zeros", "inside_(column_ * kChunk<T> < width)",
     "inside_(OUT ? column_ * kChunk<T> <= width : column_ * kChunk<T> < width)"),
]


# One dtype and width.
LESS = [
    ("width <= 64 ? f.template operator()<T, 64>() : f.template operator()<T, 128>();", "(void)width, f.template operator()<T, 64>();"),
    ("dtype == bfloat16 ? of(mu::Bf16{}) : dtype == float16 ? of(mu::Fp16{}) : of(float{});", "(void)dtype, of(mu::Bf16{});"),
]
INTERFACE = """
bool flash_forward(const ops::Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& logs) {
  return ops::on_cuda::with_switches::flash_forward(c, q, k, v, out, logs);
}
bool flash_backward(const ops::Call& c, const std::array<Tensor, 7>& in, const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  return ops::on_cuda::with_switches::flash_backward(c, in, dq, dk, dv);
}"""

without.write(sys.argv[1], "Flash", PARTS, RULES, LESS, INTERFACE)
