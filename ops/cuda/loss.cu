// Kernels of ops/loss.h. Scores are read where they lie, [outer, classes, inner]; row r of them belongs to
// target r.
#include "core/tensor/creation.h"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

Lines lines_of(const Shape& x) {
  const Around a = around(x, x.rank() > 1 ? 1 : 0);
  return {a.outer, a.size, a.inner};
}

// The sum of each row's loss, by one block; for the mean over those that count.
template <class T>
struct Total {
  T* out;
  const T* losses;
  const int64_t* target;
  int64_t rows, ignored;
  bool mean;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, losses, target);
  }
  __device__ void operator()(int64_t) const {
    double sum = 0;
    int64_t counted = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
      sum += static_cast<double>(losses[r]);
      counted += target[r] != ignored;
    }
    sum = block_sum(sum);
    counted = block_sum(counted);
    if (threadIdx.x == 0) *out = static_cast<T>(mean ? sum / static_cast<double>(counted) : sum);
  }
};
// The gradient of each row's loss from that of the total.
template <class T>
struct Share {
  T* weight;
  const T* g;
  const int64_t* target;
  int64_t rows, ignored;
  bool mean;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, weight, g, target);
  }
  __device__ void operator()(int64_t) const {
    int64_t counted = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) counted += target[r] != ignored;
    counted = block_sum(counted);
    if (threadIdx.x == 0)
      *weight = mean ? static_cast<T>(static_cast<double>(*g) / static_cast<double>(counted)) : *g;
  }
};

struct Targets {
  Tensor tensor;
  int64_t ignored;
  std::string reduction;
  Targets(const Call& c, const Tensor& t)
      : tensor(t.contiguous_data()),
        ignored(c.attrs.integer("ignore_index")),
        reduction(c.attrs.text("reduction")) {}
  bool each() const { return reduction == "none"; }
  const int64_t* data() const { return elements<const int64_t>(tensor); }
  int64_t rows() const { return tensor.numel(); }

  template <class T>
  void total(const Call& c, const Tensor& losses, const Tensor& out) const {
    for_each_row(
        c.name(), out.device(), 1, rows(),
        Total<T>{elements<T>(out), elements<const T>(losses), data(), rows(), ignored, reduction == "mean"});
  }
  // What the gradient of a row is: of each its own, or of all one.
  template <class T>
  Tensor weights(const Call& c, const Tensor& g) const {
    if (each()) return g;
    const Tensor weight = empty({1}, g.options());
    for_each_row(
        c.name(), g.device(), 1, rows(),
        Share<T>{elements<T>(weight), elements<const T>(g), data(), rows(), ignored, reduction == "mean"});
    return weight;
  }
};

template <class T>
struct NllLoss {
  T* out;
  const T* x;
  const int64_t* target;
  int64_t ignored;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x, target);
  }
  __device__ void operator()(int64_t row) const {
    const int64_t k = target[row];
    if (k != ignored) check_index(k, lines.n);
    out[row] = k == ignored ? T{0} : -x[lines.begin(row) + k * lines.inner];
  }
};
void nll_loss(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Targets t(c, c.in[1]);
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor losses = t.each() ? out[0] : scratch<T>(t.rows(), x.device());
    for_each(c.name(), x.device(), t.rows(),
             NllLoss<T>{elements<T>(losses), elements<const T>(x), t.data(), t.ignored, lines_of(x.shape())});
    if (!t.each()) t.total<T>(c, losses, out[0]);
  });
}

template <class T>
struct NllLossGrad {
  T* out;
  const T* weights;
  const int64_t* target;
  int64_t ignored;
  bool each;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, weights, target);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t rest = i / lines.inner, row = rest / lines.n * lines.inner + i % lines.inner;
    const int64_t k = target[row];
    out[i] = k != ignored && k == rest % lines.n ? -weights[each ? row : 0] : T{0};
  }
};
void nll_loss_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data();
  const Targets t(c, c.in[1]);
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor weights = t.weights<T>(c, g);
    for_each(c.name(), g.device(), out[0].numel(),
             NllLossGrad<T>{elements<T>(out[0]), elements<const T>(weights), t.data(), t.ignored, t.each(),
                            lines_of(out[0].shape())});
  });
}

// The largest score of a row, NaN aside, and the sum of exp(score - largest).
template <class T>
__device__ T row_total(const T* x, const Lines& lines, T& top) {
  T best = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x)
    best = x[i * lines.inner] > best ? x[i * lines.inner] : best;
  top = block_largest(best);
  for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x) sum += std::exp(x[i * lines.inner] - top);
  return block_sum(sum);
}

template <class T>
struct CrossEntropy {
  T* out;
  const T* x;
  const int64_t* target;
  int64_t ignored;
  double smoothing;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x, target);
  }
  __device__ void operator()(int64_t row) const {
    const T picked = static_cast<T>(1 - smoothing), all = static_cast<T>(smoothing);
    const int64_t k = target[row];
    if (k == ignored) {
      if (threadIdx.x == 0) out[row] = 0;
      return;
    }
    check_index(k, lines.n);
    const T* scores = x + lines.begin(row);
    T top, rest = 0;
    const T log_total = std::log(row_total(scores, lines, top));
    if (all != 0) {
      for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x) rest += scores[i * lines.inner] - top;
      rest = all * (log_total - block_sum(rest) / static_cast<T>(lines.n));
    }
    if (threadIdx.x == 0) out[row] = picked * (log_total - (scores[k * lines.inner] - top)) + rest;
  }
};
void cross_entropy(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Targets t(c, c.in[1]);
  const Lines lines = lines_of(x.shape());
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor losses = t.each() ? out[0] : scratch<T>(t.rows(), x.device());
    for_each_row(c.name(), x.device(), t.rows(), lines.n,
                 CrossEntropy<T>{elements<T>(losses), elements<const T>(x), t.data(), t.ignored,
                                 c.attrs.number("label_smoothing"), lines});
    if (!t.each()) t.total<T>(c, losses, out[0]);
  });
}

template <class T>
struct CrossEntropyGrad {
  T* out;
  const T *x, *weights;
  const int64_t* target;
  int64_t ignored;
  bool each;
  double smoothing;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x, weights, target);
  }
  __device__ void operator()(int64_t row) const {
    const T picked = static_cast<T>(1 - smoothing),
            all = static_cast<T>(smoothing / static_cast<double>(lines.n));
    const int64_t k = target[row], begin = lines.begin(row);
    if (k == ignored) {
      for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x) out[begin + i * lines.inner] = 0;
      return;
    }
    check_index(k, lines.n);
    T top;
    const T total = row_total(x + begin, lines, top), weight = weights[each ? row : 0];
    const T scale = weight / total, rest = all * weight;
    for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x) {
      const int64_t at = begin + i * lines.inner;
      const T d = std::exp(x[at] - top) * scale - rest;
      out[at] = i == k ? d - picked * weight : d;
    }
  }
};
void cross_entropy_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data();
  const Targets t(c, c.in[2]);
  const Lines lines = lines_of(x.shape());
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor weights = t.weights<T>(c, g);
    for_each_row(
        c.name(), x.device(), t.rows(), lines.n,
        CrossEntropyGrad<T>{elements<T>(out[0]), elements<const T>(x), elements<const T>(weights), t.data(),
                            t.ignored, t.each(), c.attrs.number("label_smoothing"), lines});
  });
}

}  // namespace

KernelTable loss_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"nll_loss", nll_loss},
      {"nll_loss_grad", nll_loss_grad},
      {"cross_entropy", cross_entropy},
      {"cross_entropy_grad", cross_entropy_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
