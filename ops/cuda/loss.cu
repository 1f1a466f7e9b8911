// Kernels of ops/loss.h. Cross-entropy reads scores once, and once more for the gradient, 16 bytes at a time
// where a row lies together, and takes halves. Scores are read where they lie, [outer, classes, inner]; row r
// of them belongs to target r.
#include "core/tensor/creation.h"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"

namespace troupe::ops::on_cuda {
namespace {

Lines lines_of(const Shape& x) {
  const Around a = around(x, x.rank() > 1 ? 1 : 0);
  return {a.outer, a.size, a.inner};
}

// The sum of each row's loss, by one block; for the mean over those that count. A: what is computed with.
template <class T, class A>
struct Total {
  T* out;
  const A* losses;
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
    if (threadIdx.x == 0)
      *out = static_cast<T>(static_cast<A>(mean ? sum / static_cast<double>(counted) : sum));
  }
};
// The gradient of each row's loss from that of the total.
template <class T, class A>
struct Share {
  A* weight;  // of halves float32
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
    const auto all = static_cast<A>(*g);
    if (threadIdx.x == 0)
      *weight = mean ? static_cast<A>(static_cast<double>(all) / static_cast<double>(counted)) : all;
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

  template <class T, class A>
  void total(const Call& c, const Tensor& losses, const Tensor& out) const {
    for_each_row(c.name(), out.device(), 1, rows(),
                 Total<T, A>{elements<T>(out), elements<const A>(losses), data(), rows(), ignored,
                             reduction == "mean"});
  }
  // What the gradient of all rows is.
  template <class T, class A>
  Tensor weight(const Call& c, const Tensor& g) const {
    const Tensor weight = scratch<A>(1, g.device());
    for_each_row(
        c.name(), g.device(), 1, rows(),
        Share<T, A>{elements<A>(weight), elements<const T>(g), data(), rows(), ignored, reduction == "mean"});
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
    if (!t.each()) t.total<T, T>(c, losses, out[0]);
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
    const Tensor weights = t.each() ? g : t.weight<T, T>(c, g);
    for_each(c.name(), g.device(), out[0].numel(),
             NllLossGrad<T>{elements<T>(out[0]), elements<const T>(weights), t.data(), t.ignored, t.each(),
                            lines_of(out[0].shape())});
  });
}

// f(score, i) for the elements of a row that this thread takes; those that lie together come in packs. `to`:
// takes what f gives, in the same places.
template <class T, class A, class F>
__device__ void each_score(const T* x, const Lines& lines, F&& f, T* to = nullptr) {
  constexpr int kPack = cuda::kPackOf<T>;
  const int64_t n = lines.n, step = blockDim.x;
  int64_t first = 0, packed = 0;  // before the first whole pack, and in packs
  if (lines.inner == 1 &&
      (!to || (reinterpret_cast<uintptr_t>(x) ^ reinterpret_cast<uintptr_t>(to)) % 16 == 0)) {
    first = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(x) % 16) % 16 / sizeof(T));
    first = first < n ? first : n;
    packed = (n - first) / kPack * kPack;
  }
  for (int64_t i = first + threadIdx.x * kPack; i < first + packed; i += step * kPack) {
    const auto values = cuda::load_pack<kPack>(x + i);
    if constexpr (std::is_void_v<decltype(f(A{}, i))>) {
#pragma unroll
      for (int l = 0; l < kPack; ++l) f(static_cast<A>(values.at[l]), i + l);
    } else {
      cuda::Pack<T, kPack> results;
#pragma unroll
      for (int l = 0; l < kPack; ++l) results.at[l] = f(static_cast<A>(values.at[l]), i + l);
      cuda::store_pack(to + i, results);
    }
  }
  for (int64_t k = threadIdx.x; k < n - packed; k += step) {
    const int64_t i = k < first ? k : k + packed;
    if constexpr (std::is_void_v<decltype(f(A{}, i))>)
      f(static_cast<A>(x[i * lines.inner]), i);
    else
      to[i * lines.inner] = f(static_cast<A>(x[i * lines.inner]), i);
  }
}

// The largest score of some, NaN aside, and the sum of exp(score - largest).
template <class T, class A>
struct RowTotal {
  A top = -std::numeric_limits<A>::infinity(), sum = 0;
  __device__ void add(A x) {
    if (x > top) {
      sum = sum * (sum != 0 ? exp_of<T>(top - x) : A{1}) + (1 + (x - x));  // NaN, if x is infinite
      top = x;
    } else if (x != top || x > -std::numeric_limits<A>::infinity()) {
      sum += exp_of<T>(x - top);  // NaN stays to be seen
    }
  }
};
template <class T, class A>
struct JoinTotals {
  __device__ RowTotal<T, A> merge(RowTotal<T, A> a, RowTotal<T, A> b) const {
    if (b.top > a.top) {
      const RowTotal<T, A> other = a;
      a = b, b = other;
    }
    if (b.sum != 0) a.sum += b.sum * (b.top == a.top ? A{1} : exp_of<T>(b.top - a.top));
    return a;
  }
};
template <class T, class A>
__device__ RowTotal<T, A> row_total(const T* x, const Lines& lines) {
  RowTotal<T, A> mine;
  each_score<T, A>(x, lines, [&](A score, int64_t) { mine.add(score); });
  return block_merge(mine, JoinTotals<T, A>{});
}

// T: scores; A: what is computed with; L: losses.
template <class T, class A, class L>
struct CrossEntropy {
  L* out;
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
    const A picked = static_cast<A>(1 - smoothing), all = static_cast<A>(smoothing);
    const int64_t k = target[row];
    if (k == ignored) {
      if (threadIdx.x == 0) out[row] = static_cast<L>(A{0});
      return;
    }
    check_index(k, lines.n);
    const T* scores = x + lines.begin(row);
    const RowTotal<T, A> total = row_total<T, A>(scores, lines);
    const A log_total = std::log(total.sum);
    A rest = 0;
    if (all != 0) {
      each_score<T, A>(scores, lines, [&](A score, int64_t) { rest += score - total.top; });
      rest = all * (log_total - block_sum(rest) / static_cast<A>(lines.n));
    }
    if (threadIdx.x == 0)
      out[row] =
          static_cast<L>(picked * (log_total - (static_cast<A>(scores[k * lines.inner]) - total.top)) + rest);
  }
};
void cross_entropy(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Targets t(c, c.in[1]);
  const Lines lines = lines_of(x.shape());
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    const auto losses = [&]<class L>(L* to) {
      for_each_row(c.name(), x.device(), t.rows(), lines.n,
                   CrossEntropy<T, A, L>{to, elements<const T>(x), t.data(), t.ignored,
                                         c.attrs.number("label_smoothing"), lines});
    };
    if (t.each()) return losses(elements<T>(out[0]));
    const Tensor all = scratch<A>(t.rows(), x.device());
    losses(elements<A>(all));
    t.total<T, A>(c, all, out[0]);
  });
}

// W: gradients of losses, of each row or one of all.
template <class T, class A, class W>
struct CrossEntropyGrad {
  T* out;
  const T* x;
  const W* weights;
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
    const A picked = static_cast<A>(1 - smoothing),
            all = static_cast<A>(smoothing / static_cast<double>(lines.n));
    const int64_t k = target[row], begin = lines.begin(row);
    T* const to = out + begin;
    if (k == ignored) return write(x + begin, to, [](A, int64_t) { return A{0}; });
    check_index(k, lines.n);
    const RowTotal<T, A> total = row_total<T, A>(x + begin, lines);
    const A weight = static_cast<A>(weights[each ? row : 0]), scale = weight / total.sum, rest = all * weight;
    write(x + begin, to, [&](A score, int64_t i) {
      const A d = exp_of<T>(score - total.top) * scale - rest;
      return i == k ? d - picked * weight : d;
    });
  }

 private:
  // Results lie as scores do, and are written as these are read.
  template <class F>
  __device__ void write(const T* from, T* to, F&& f) const {
    each_score<T, A>(
        from, lines, [&](A score, int64_t i) { return static_cast<T>(f(score, i)); }, to);
  }
};
void cross_entropy_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data();
  const Targets t(c, c.in[2]);
  const Lines lines = lines_of(x.shape());
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    const auto slopes = [&]<class W>(const W* weights) {
      for_each_row(c.name(), x.device(), t.rows(), lines.n,
                   CrossEntropyGrad<T, A, W>{elements<T>(out[0]), elements<const T>(x), weights, t.data(),
                                             t.ignored, t.each(), c.attrs.number("label_smoothing"), lines});
    };
    if (t.each()) return slopes(elements<const T>(g));
    const Tensor one = t.weight<T, A>(c, g);
    slopes(elements<const A>(one));
  });
}

}  // namespace

KernelTable loss_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"nll_loss", nll_loss},
      {"nll_loss_grad", nll_loss_grad},
      {"cross_entropy", cross_entropy, nullptr, true},
      {"cross_entropy_grad", cross_entropy_grad, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
