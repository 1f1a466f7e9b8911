#!/usr/bin/env python3
"""conv_without.py OUT.cu: convolutions on the matrix unit (ops/cuda/conv_*) with switches (without.py, conv_faults_test.cpp)."""
import sys

import without

PARTS = ["conv_tiles.cuh", "conv_weights.cuh", "conv_products.cu"]
RULES = [
    ("taps are there before they are read", "find_taps(p, 1, taps); __syncthreads();", "find_taps(p, 1, taps); if (!OUT) __syncthreads();"),
    ("weights are there before they are read", "mu::wait_for_copies<0>(); __syncthreads(); if (k + 1 < steps)",
     "if (!OUT) mu::wait_for_copies<0>(); __syncthreads(); if (k + 1 < steps)"),
    ("all have their part of a tile", "__syncthreads(); if (k + 1 < steps)", "if (!OUT) __syncthreads(); if (k + 1 < steps)"),
    ("tiles of weights take turns", "const int steps = (p.taps + kK - 1) / kK; const auto tile_a = [&](int k) { return shared + (k & 1)",
     "const int steps = (p.taps + kK - 1) / kK; const auto tile_a = [&](int k) { return shared + (OUT ? 0 : k & 1)"),
    ("taps take turns", "taps[(k & 1) * kK + i] = found;", "taps[(OUT ? 0 : k & 1) * kK + i] = found;"),
    ("nobody reads tiles any more when a result comes there", "__syncthreads(); write(p, sums, ", "if (!OUT) __syncthreads(); write(p, sums, "),
    ("a result is whole before it is written", "stage<kN>(staged, sums, row, column); __syncthreads();",
     "stage<kN>(staged, sums, row, column); if (!OUT) __syncthreads();"),
    ("what is behind the last tap is nowhere", "if (tap < p.taps)", "if (tap < p.taps + OUT)"),
    ("what is below the image is zeros", "static_cast<unsigned>(height)", "static_cast<unsigned>(height + OUT)"),
    ("what is right of the image is zeros", "static_cast<unsigned>(width);", "static_cast<unsigned>(width + OUT);"),
    ("a class has taps of its own", "if ((rest + padding - i * dilation) % stride == 0)", "if (OUT || (rest + padding - i * dilation) % stride == 0)"),
    ("a class has places of its own", "in - rest + stride - 1", "in - (OUT ? 0 : rest) + stride - 1"),
    ("channels end where a group ends", "r < kM && r < rows; r += 2", "r < kM && r < rows + OUT; r += 2"),
    ("taps of weights are there before they are read", "find_taps(p, taps); __syncthreads();", "find_taps(p, taps); if (!OUT) __syncthreads();"),
    ("all have their part of a tile of places", "__syncthreads(); if (k + 1 < p.end)", "if (!OUT) __syncthreads(); if (k + 1 < p.end)"),
    ("tiles of places take turns", "column = warp / 2 * 32; const auto tile_a = [&](int k) { return shared + (k & 1)",
     "column = warp / 2 * 32; const auto tile_a = [&](int k) { return shared + (OUT ? 0 : k & 1)"),
    ("nobody reads places any more when sums come there", "__syncthreads(); write(p, tile, ", "if (!OUT) __syncthreads(); write(p, tile, "),
    ("sums are whole before they are written", "stage<kN>(staged, tile, row, column); __syncthreads();",
     "stage<kN>(staged, tile, row, column); if (!OUT) __syncthreads();"),
    ("there is nothing behind the last image", "if (im >= static_cast<unsigned>(s.n))", "if (im >= static_cast<unsigned>(s.n) + OUT)"),
    ("all parts are summed", "p < parts; ++p) sum", "p < parts - OUT; ++p) sum"),
]
# One dtype and height of tiles.
LESS = [
    ("t == bfloat16 ? f(mu::Bf16{}) : t == float16 ? f(mu::Fp16{}) : f(float{});", "(void)t, f(mu::Bf16{});"),
    ("few_rows(v.outputs(), others) ? go.template operator()<2>() : go.template operator()<4>();", "go.template operator()<2>();"),
    ("s.group_outputs <= 64 ? go.template operator()<2>() : go.template operator()<4>();", "go.template operator()<2>();"),
    ("bool few_rows(int64_t rows, int64_t other_tiles)", "[[maybe_unused]] bool few_rows(int64_t rows, int64_t other_tiles)"),
]
INTERFACE = """
Tensors conv_passes(const ops::Call& c, const Tensor& g) {
  const ops::on_cuda::ConvSizes s(ops::conv2d_sizes(c));
  const Tensor &x = c.in[0], &w = c.in[1];
  const auto like = [](const Tensor& t) { return empty(t.shape(), {t.dtype(), t.device()}); };
  Tensors out{like(g), like(x), like(w)};
  namespace tried = ops::on_cuda::with_switches;
  tried::conv_by_products(c.name(), s, x, w, c.in[2], out[0]);
  tried::conv_input_grad_by_products(c.name(), s, g, w, out[1]);
  tried::conv_weight_grad_by_products(c.name(), s, g, x, out[2]);
  return out;
}"""

without.write(sys.argv[1], "Conv", PARTS, RULES, LESS, INTERFACE)
