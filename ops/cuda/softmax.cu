// Kernels of ops/softmax.h: rows that lie together in the registers of a group of threads, other lines by a
// block each.
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"

namespace troupe::ops::on_cuda {
namespace {

// T: what is stored; A: what is computed with.
template <class T, class A, bool log>
struct Softmax {
  T* out;
  const T* x;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t row) const {
    const int64_t begin = lines.begin(row), step = lines.inner, width = blockDim.x;
    const T* in = x + begin;
    T* to = out + begin;
    A top = -std::numeric_limits<A>::infinity(), sum = 0;
    for (int64_t i = threadIdx.x; i < lines.n; i += width) {
      const A score = static_cast<A>(in[i * step]);
      top = score > top ? score : top;
    }
    top = block_largest(top);
    for (int64_t i = threadIdx.x; i < lines.n; i += width)
      sum += std::exp(static_cast<A>(in[i * step]) - top);
    sum = block_sum(sum);
    const A scale = 1 / sum, log_total = std::log(sum);
    for (int64_t i = threadIdx.x; i < lines.n; i += width) {
      const A shifted = static_cast<A>(in[i * step]) - top;
      to[i * step] = static_cast<T>(log ? shifted - log_total : std::exp(shifted) * scale);
    }
  }
};

template <class T, class A, bool log>
struct SoftmaxGrad {
  T* out;
  const T *g, *y;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g, y);
  }
  __device__ void operator()(int64_t row) const {
    const int64_t begin = lines.begin(row), step = lines.inner, width = blockDim.x;
    A sum = 0;
    for (int64_t i = threadIdx.x; i < lines.n; i += width) {
      const int64_t at = begin + i * step;
      sum += log ? static_cast<A>(g[at]) : static_cast<A>(g[at]) * static_cast<A>(y[at]);
    }
    sum = block_sum(sum);
    for (int64_t i = threadIdx.x; i < lines.n; i += width) {
      const int64_t at = begin + i * step;
      const A slope = static_cast<A>(g[at]), result = static_cast<A>(y[at]);
      out[at] = static_cast<T>(log ? slope - std::exp(result) * sum : result * (slope - sum));
    }
  }
};

template <class T, int kPacks, int kGroup, bool log>
struct SoftmaxRows {
  static constexpr int kAtOnce = kRowThreads / kGroup;
  T* out;
  const T* x;
  int64_t rows;
  int n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ __forceinline__ void operator()(int64_t block, float* shared) const {
    using Part = RowPart<T, kPacks, kGroup>;
    const int64_t row = block * kAtOnce + static_cast<int>(threadIdx.x) / kGroup;
    const bool there = row < rows;
    Part in;
    in.load(there ? x + row * n : nullptr, n);
    GroupValues<kGroup> values(shared);
    float top[1] = {-std::numeric_limits<float>::infinity()}, sum[1] = {0};
    Part::each(n, [&](int p, int e) { top[0] = fmaxf(top[0], in.at[p][e]); });
    values.join(top, Larger2{});
    Part::each(n, [&](int p, int e) {
      float& v = in.at[p][e];
      v -= top[0];
      const float weight = exp_of<T>(v);
      sum[0] += weight;
      if constexpr (!log) v = weight;
    });
    values.join(sum);
    const float scale = 1 / sum[0], log_total = std::log(sum[0]);
    Part::each(n, [&](int p, int e) {
      float& v = in.at[p][e];
      v = log ? v - log_total : v * scale;
    });
    if (there) in.store(out + row * n, n);
  }
};

template <class T, int kPacks, int kGroup, bool log>
struct SoftmaxGradRows {
  static constexpr int kAtOnce = kRowThreads / kGroup;
  T* out;
  const T *g, *y;
  int64_t rows;
  int n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g, y);
  }
  __device__ __forceinline__ void operator()(int64_t block, float* shared) const {
    using Part = RowPart<T, kPacks, kGroup>;
    const int64_t row = block * kAtOnce + static_cast<int>(threadIdx.x) / kGroup;
    const bool there = row < rows;
    Part slope, result;
    slope.load(there ? g + row * n : nullptr, n);
    result.load(there ? y + row * n : nullptr, n);
    GroupValues<kGroup> values(shared);
    float sum[1] = {0};
    Part::each(n, [&](int p, int e) { sum[0] += log ? slope.at[p][e] : slope.at[p][e] * result.at[p][e]; });
    values.join(sum);
    Part::each(n, [&](int p, int e) {
      float& v = slope.at[p][e];
      v = log ? v - exp_of<T>(result.at[p][e]) * sum[0] : result.at[p][e] * (v - sum[0]);
    });
    if (there) slope.store(out + row * n, n);
  }
};

// Goes by rows in registers, if lines lie together and fit. make<kPacks, kGroup>(rows, n): the body.
template <class T, class Make>
bool by_rows(const Call& c, Device device, const Lines& lines, std::initializer_list<const void*> at,
             Make&& make) {
  const int64_t rows = lines.rows();
  return lines.inner == 1 && rows < INT32_MAX && visit_rows<T>(lines.n, at, [&]<int kPacks, int kGroup>() {
           const auto body = make.template operator()<kPacks, kGroup>(rows, static_cast<int>(lines.n));
           run_rows(c, device, (rows + body.kAtOnce - 1) / body.kAtOnce, GroupValues<kGroup>::kShared, body);
         });
}

template <bool log>
void softmax(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  if (x.numel() == 0) return;
  const Lines lines = lines_along(c, x.shape());
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    T* const to = elements<T>(out[0]);
    const T* const from = elements<const T>(x);
    if constexpr (std::is_same_v<A, float>)
      if (by_rows<T>(c, x.device(), lines, {to, from}, [&]<int kPacks, int kGroup>(int64_t rows, int n) {
            return SoftmaxRows<T, kPacks, kGroup, log>{to, from, rows, n};
          }))
        return;
    for_each_row(c.name(), x.device(), lines.rows(), lines.n, Softmax<T, A, log>{to, from, lines});
  });
}
template <bool log>
void softmax_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), y = c.in[1].contiguous_data();
  if (g.numel() == 0) return;
  const Lines lines = lines_along(c, g.shape());
  visit_stored(g.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    T* const to = elements<T>(out[0]);
    const T *const slope = elements<const T>(g), *const result = elements<const T>(y);
    if constexpr (std::is_same_v<A, float>)
      if (by_rows<T>(c, g.device(), lines, {to, slope, result},
                     [&]<int kPacks, int kGroup>(int64_t rows, int n) {
                       return SoftmaxGradRows<T, kPacks, kGroup, log>{to, slope, result, rows, n};
                     }))
        return;
    for_each_row(c.name(), g.device(), lines.rows(), lines.n,
                 SoftmaxGrad<T, A, log>{to, slope, result, lines});
  });
}

}  // namespace

KernelTable softmax_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"softmax", softmax<false>, nullptr, true},
      {"log_softmax", softmax<true>, nullptr, true},
      {"softmax_grad", softmax_grad<false>, nullptr, true},
      {"log_softmax_grad", softmax_grad<true>, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
