// Launches of convolutions as products on the matrix unit.
#include "ops/cuda/conv_tiles.cuh"

#include <numeric>

#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/cuda/conv_weights.cuh"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

constexpr int64_t kEnoughBlocks = 264;  // two for each multiprocessor of the largest cards
constexpr int64_t kMostSide = 1 << 28, kMostElements = 1 << 30;  // their places are ints
constexpr int64_t kLeastOfGroup = 4;  // channels: with fewer, almost all of a product would be zeros

template <class Body>
__global__ void __launch_bounds__(Body::kThreads) conv_product(Body body) {
  DYNAMIC_SHARED(typename Body::Element, shared);
  body(static_cast<int64_t>(blockIdx.x), shared);
}
template <class Body>
void run(const char* name, Device device, int64_t blocks, const Body& body) {
  cuda::launch(name, device, conv_product<Body>, dim3(static_cast<unsigned>(blocks)), dim3(Body::kThreads),
               Body::kShared, body);
}

int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }

// Whether 64 rows at a time fill the card better than 128.
bool few_rows(int64_t rows, int64_t other_tiles) {
  return rows <= 64 || tiles(rows, 128) * other_tiles < kEnoughBlocks;
}

template <class F>
void visit_units(DType t, F&& f) {
  t == bfloat16 ? f(mu::Bf16{}) : t == float16 ? f(mu::Fp16{}) : f(float{});
}

bool fits(const ConvSizes& s) {
  for (int d = 0; d < 2; ++d)
    if (std::max({s.in[d], s.out[d], s.padding[d], s.stride[d], s.dilation[d],
                  (s.out[d] - 1) * s.stride[d] + (s.kernel[d] - 1) * s.dilation[d]}) >= kMostSide)
      return false;
  const int64_t taps = s.kernel[0] * s.kernel[1], plane = s.out[0] * s.out[1];
  const int64_t most =
      std::max({s.image_size(), s.outputs * plane, s.outputs * s.group_channels * taps, s.n * plane,
                s.n * s.in[0] * s.in[1], s.stride[0] * s.stride[1] * s.channels});
  return most < kMostElements;
}

ConvView view_of(const ConvSizes& s, bool of_input) {
  ConvView v{s, of_input, {1, 1}};
  if (of_input)
    for (int d = 0; d < 2; ++d)
      v.tap_steps[d] = static_cast<int>(s.stride[d] / std::gcd(s.stride[d], s.dilation[d]));
  return v;
}

// Weights as a product reads them.
template <class T>
struct PackWeights {
  T* out;
  const T* weight;
  ConvView v;
  int64_t row;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, weight);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t k = at % row, output = at / row % v.outputs(), rest = at / row / v.outputs();
    const int64_t first = rest % v.s.groups * v.s.group_outputs;
    const int number = static_cast<int>(rest / v.s.groups);
    const Along down = v.along(0, number), across = v.along(1, number);
    if (k >= v.inputs() * down.taps * across.taps) {
      out[at] = T{};
      return;
    }
    const int64_t input = k / across.taps / down.taps;
    const int64_t i = k / across.taps % down.taps * down.weight_step + down.weight_first,
                  j = k % across.taps * across.weight_step + across.weight_first;
    out[at] = weight[v.of_input ? v.s.weight_place(first + input, output, i, j)
                                : v.s.weight_place(first + output, input, i, j)];
  }
};

template <class T>
void multiply(const char* name, const ConvView& v, const Tensor& from, const Tensor& w, const Tensor& bias,
              const Tensor& out) {
  const int64_t row = v.row(kChunk<T>), all = v.classes() * v.s.groups * v.outputs() * row;
  Tensor rows = w;
  if (v.of_input || w.numel() != all || reinterpret_cast<uintptr_t>(w.address()) % 16) {
    rows = empty({all}, {w.dtype(), w.device()});
    for_each(name, w.device(), all, PackWeights<T>{elements<T>(rows), elements<const T>(w), v, row});
  }
  const int64_t n_tiles = tiles(v.s.n * v.most_places(0) * v.most_places(1), 128);
  const int64_t others = n_tiles * v.s.groups * v.classes();
  const auto go = [&]<int kMt>() {
    using Body = ConvProduct<T, kMt>;
    const int64_t m_tiles = tiles(v.outputs(), Body::kM);
    run(name, out.device(), m_tiles * others,
        Body{elements<T>(out), elements<const T>(rows), elements<const T>(from), elements<const T>(bias), v,
             static_cast<int>(m_tiles), static_cast<int>(n_tiles)});
  };
  few_rows(v.outputs(), others) ? go.template operator()<2>() : go.template operator()<4>();
}

// The sums of all parts, in their order.
template <class T>
struct SumOfParts {
  T* out;
  const float* sums;
  int64_t size, parts;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, sums);
  }
  __device__ void operator()(int64_t i) const {
    float sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += sums[p * size + i];
    out[i] = static_cast<T>(sum);
  }
};

template <class T>
void multiply_for_weight(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& x,
                         const Tensor& dw) {
  const int64_t weights = s.group_channels * s.kernel[0] * s.kernel[1];
  const int64_t n_tiles = tiles(weights, 128), others = n_tiles * s.groups;
  const auto go = [&]<int kMt>() {
    using Body = ConvWeightProduct<T, kMt>;
    const int64_t m_tiles = tiles(s.group_outputs, Body::kM),
                  steps = tiles(s.n * s.out[0] * s.out[1], Body::kK);
    const int64_t parts = std::clamp<int64_t>(kEnoughBlocks / (m_tiles * others), 1, tiles(steps, 4));
    const Tensor sums = empty({parts * dw.numel()}, {float32, dw.device()});
    run(name, dw.device(), m_tiles * others * parts,
        Body{elements<float>(sums), elements<const T>(g), elements<const T>(x), s, static_cast<int>(m_tiles),
             static_cast<int>(n_tiles), static_cast<int>(parts)});
    for_each(name, dw.device(), dw.numel(),
             SumOfParts<T>{elements<T>(dw), elements<const float>(sums), dw.numel(), parts});
  };
  s.group_outputs <= 64 ? go.template operator()<2>() : go.template operator()<4>();
}

}  // namespace

bool multiplies_conv(const ConvSizes& s, DType t) {
  return t != float64 && fits(s) &&
         (s.one_group() || std::min(s.group_channels, s.group_outputs) >= kLeastOfGroup);
}
void conv_by_products(const char* name, const ConvSizes& s, const Tensor& x, const Tensor& w,
                      const Tensor& bias, const Tensor& y) {
  visit_units(y.dtype(),
              [&](auto zero) { multiply<decltype(zero)>(name, view_of(s, false), x, w, bias, y); });
}
void conv_input_grad_by_products(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& w,
                                 const Tensor& dx) {
  visit_units(dx.dtype(), [&](auto zero) { multiply<decltype(zero)>(name, view_of(s, true), g, w, {}, dx); });
}
void conv_weight_grad_by_products(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& x,
                                  const Tensor& dw) {
  visit_units(dw.dtype(), [&](auto zero) { multiply_for_weight<decltype(zero)>(name, s, g, x, dw); });
}

}  // namespace troupe::ops::on_cuda
