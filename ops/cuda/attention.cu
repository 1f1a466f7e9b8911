// Kernels of ops/attention.h. A block for each query goes through the keys in tiles, with a running maximum
// and sum (Milakov, Gimelshein 2018); backward a block for each query, then one for each key. No matrix of
// scores is kept.
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

// One of the arrays [..., rows, width]: its strides within a matrix.
template <class T>
struct Matrix {
  T* p;
  int64_t row, column;
  explicit Matrix(const Tensor& t)
      : p(elements<T>(t)), row(t.strides()[t.dim() - 2]), column(t.strides()[t.dim() - 1]) {}
};

struct Sizes {
  int64_t queries, keys, width, value_width;
  bool causal;
  double scale;

  Sizes(const Tensor& q, const Tensor& k, const Tensor& v, bool causal)
      : queries(q.size(-2)), keys(k.size(-2)), width(q.size(-1)), value_width(v.size(-1)), causal(causal) {
    scale = width ? 1 / std::sqrt(static_cast<double>(width)) : 1;
  }
  // Keys that query i sees.
  __device__ int64_t seen(int64_t i) const { return causal && i + 1 < keys ? i + 1 : keys; }
};

template <class T>
__device__ T dot(const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t n) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i * a_step] * b[i * b_step];
  return sum;
}

// The dimensions before the last two.
Shape leading(Shape s) {
  s.erase(s.rank() - 1);
  s.erase(s.rank() - 1);
  return s;
}
Shape leading_strides(const Tensor& t) { return leading(t.strides()); }

template <class T>
struct Attend {
  Matrix<T> out;
  T* logs;
  Matrix<const T> q, k, v;
  Sizes s;
  Places<4> heads;  // of q, k, v and out
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out.p, logs, q.p, k.p, v.p);
  }
  __device__ void operator()(int64_t row) const {
    __shared__ T weights[kThreads];
    const int64_t i = row % s.queries, keys = s.seen(i);
    int64_t at[4];
    heads.find(row / s.queries, at);
    const T *query = q.p + at[0] + i * q.row, *key = k.p + at[1], *value = v.p + at[2];
    T* to = out.p + at[3] + i * out.row;
    T top = -std::numeric_limits<T>::infinity(), total = 0;
    for (int64_t x = threadIdx.x; x < s.value_width; x += blockDim.x) to[x * out.column] = 0;
    for (int64_t j0 = 0; j0 < keys; j0 += blockDim.x) {
      const int64_t j = j0 + threadIdx.x, count = keys - j0 < blockDim.x ? keys - j0 : blockDim.x;
      T score = -std::numeric_limits<T>::infinity();
      if (j < keys)
        score = dot(query, q.column, key + j * k.row, k.column, s.width) * static_cast<T>(s.scale);
      const T best = block_largest(score), high = best > top ? best : top;
      const T shrink = total != 0 ? std::exp(top - high) : T{0};
      const T weight = j < keys ? std::exp(score - high) : T{0};
      weights[threadIdx.x] = weight;
      total = total * shrink + block_sum(weight);  // its barriers are the weights', too
      top = high;
      for (int64_t x = threadIdx.x; x < s.value_width; x += blockDim.x) {
        const T* column = value + j0 * v.row + x * v.column;
        T sum = j0 ? to[x * out.column] * shrink : T{0};
        for (int64_t l = 0; l < count; ++l) sum += weights[l] * column[l * v.row];
        to[x * out.column] = sum;
      }
      __syncthreads();  // the next tile's weights go there
    }
    for (int64_t x = threadIdx.x; x < s.value_width; x += blockDim.x)
      to[x * out.column] = keys ? to[x * out.column] * (1 / total) : 0;
    if (threadIdx.x == 0) logs[row] = top + std::log(total);
  }
};

void forward(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
             const Tensor& logs) {
  const Sizes s(q, k, v, c.attrs.flag("causal"));
  const Shape heads = leading(q.shape());
  visit_floating(q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Attend<T> body{
        Matrix<T>(out),
        elements<T>(logs),
        Matrix<const T>(q),
        Matrix<const T>(k),
        Matrix<const T>(v),
        s,
        {heads, {leading_strides(q), leading_strides(k), leading_strides(v), leading_strides(out)}}};
    for_each_row(c.name(), q.device(), heads.numel() * s.queries, std::max(s.keys, s.value_width), body);
  });
}

// What both passes of the gradient read.
template <class T>
struct Context {
  Matrix<const T> g, q, k, v, out;
  const T *g_logs, *logs;
  T* delta;  // of each query: the sum of gradient times result, less the gradient of the logarithm
  Sizes s;
  Places<8> heads;  // of g, q, k, v, out, dq, dk, dv

  template <class F>
  void visit(F&& f) {
    visit_pointers(f, g.p, q.p, k.p, v.p, out.p, g_logs, logs, delta);
  }
  // The weight of a query and key, and the gradient of their score.
  __device__ void weigh(const int64_t (&at)[8], int64_t head, int64_t i, int64_t j, T& weight,
                        T& slope) const {
    const T scale = static_cast<T>(s.scale);
    const T score = dot(q.p + at[1] + i * q.row, q.column, k.p + at[2] + j * k.row, k.column, s.width);
    const T product =
        dot(g.p + at[0] + i * g.row, g.column, v.p + at[3] + j * v.row, v.column, s.value_width);
    weight = std::exp(score * scale - logs[head * s.queries + i]);
    slope = weight * (product - delta[head * s.queries + i]) * scale;
  }
};

template <class T>
struct Delta {
  Context<T> c;
  template <class F>
  void visit(F&& f) {
    c.visit(f);
  }
  __device__ void operator()(int64_t row) const {
    const int64_t i = row % c.s.queries;
    int64_t at[8];
    c.heads.find(row / c.s.queries, at);
    c.delta[row] = dot(c.g.p + at[0] + i * c.g.row, c.g.column, c.out.p + at[4] + i * c.out.row, c.out.column,
                       c.s.value_width) -
                   c.g_logs[row];
  }
};

template <class T>
struct QueryGrad {
  Matrix<T> dq;
  Context<T> c;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dq.p);
    c.visit(f);
  }
  __device__ void operator()(int64_t row) const {
    __shared__ T slopes[kThreads];
    const int64_t head = row / c.s.queries, i = row % c.s.queries, keys = c.s.seen(i);
    int64_t at[8];
    c.heads.find(head, at);
    T* to = dq.p + at[5] + i * dq.row;
    for (int64_t x = threadIdx.x; x < c.s.width; x += blockDim.x) to[x * dq.column] = 0;
    for (int64_t j0 = 0; j0 < keys; j0 += blockDim.x) {
      const int64_t j = j0 + threadIdx.x, count = keys - j0 < blockDim.x ? keys - j0 : blockDim.x;
      T weight, slope = 0;
      if (j < keys) c.weigh(at, head, i, j, weight, slope);
      slopes[threadIdx.x] = slope;
      __syncthreads();
      for (int64_t x = threadIdx.x; x < c.s.width; x += blockDim.x) {
        const T* column = c.k.p + at[2] + j0 * c.k.row + x * c.k.column;
        T sum = to[x * dq.column];
        for (int64_t l = 0; l < count; ++l) sum += slopes[l] * column[l * c.k.row];
        to[x * dq.column] = sum;
      }
      __syncthreads();
    }
  }
};

template <class T>
struct KeyGrad {
  Matrix<T> dk, dv;
  Context<T> c;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dk.p, dv.p);
    c.visit(f);
  }
  __device__ void operator()(int64_t row) const {
    __shared__ T weights[kThreads];
    __shared__ T slopes[kThreads];
    const int64_t head = row / c.s.keys, j = row % c.s.keys, queries = c.s.queries;
    int64_t at[8];
    c.heads.find(head, at);
    T *to_k = dk.p + at[6] + j * dk.row, *to_v = dv.p + at[7] + j * dv.row;
    for (int64_t x = threadIdx.x; x < c.s.width; x += blockDim.x) to_k[x * dk.column] = 0;
    for (int64_t x = threadIdx.x; x < c.s.value_width; x += blockDim.x) to_v[x * dv.column] = 0;
    // Queries before the key do not see it.
    for (int64_t i0 = c.s.causal ? j : 0; i0 < queries; i0 += blockDim.x) {
      const int64_t i = i0 + threadIdx.x, count = queries - i0 < blockDim.x ? queries - i0 : blockDim.x;
      T weight = 0, slope = 0;
      if (i < queries) c.weigh(at, head, i, j, weight, slope);
      weights[threadIdx.x] = weight;
      slopes[threadIdx.x] = slope;
      __syncthreads();
      for (int64_t x = threadIdx.x; x < c.s.width; x += blockDim.x) {
        const T* column = c.q.p + at[1] + i0 * c.q.row + x * c.q.column;
        T sum = to_k[x * dk.column];
        for (int64_t l = 0; l < count; ++l) sum += slopes[l] * column[l * c.q.row];
        to_k[x * dk.column] = sum;
      }
      for (int64_t x = threadIdx.x; x < c.s.value_width; x += blockDim.x) {
        const T* column = c.g.p + at[0] + i0 * c.g.row + x * c.g.column;
        T sum = to_v[x * dv.column];
        for (int64_t l = 0; l < count; ++l) sum += weights[l] * column[l * c.g.row];
        to_v[x * dv.column] = sum;
      }
      __syncthreads();
    }
  }
};

// In the order of the inputs of attention_grad.
void backward(const Call& c, const std::array<Tensor, 7>& in, const Tensor& dq, const Tensor& dk,
              const Tensor& dv) {
  const Tensor &g = in[0], &q = in[2], &k = in[3], &v = in[4], &out = in[5];
  const Tensor g_logs = in[1].contiguous_data(), logs = in[6].contiguous_data();
  const Sizes s(q, k, v, c.attrs.flag("causal"));
  const Shape heads = leading(q.shape());
  const int64_t count = heads.numel();
  visit_floating(q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor delta = scratch<T>(count * s.queries, q.device());
    const Context<T> all{
        Matrix<const T>(g),
        Matrix<const T>(q),
        Matrix<const T>(k),
        Matrix<const T>(v),
        Matrix<const T>(out),
        elements<const T>(g_logs),
        elements<const T>(logs),
        elements<T>(delta),
        s,
        {heads,
         {leading_strides(g), leading_strides(q), leading_strides(k), leading_strides(v),
          leading_strides(out), leading_strides(dq), leading_strides(dk), leading_strides(dv)}}};
    for_each(c.name(), q.device(), count * s.queries, Delta<T>{all});
    for_each_row(c.name(), q.device(), count * s.queries, std::max(s.keys, s.width),
                 QueryGrad<T>{Matrix<T>(dq), all});
    for_each_row(c.name(), q.device(), count * s.keys, std::max({s.queries, s.width, s.value_width}),
                 KeyGrad<T>{Matrix<T>(dk), Matrix<T>(dv), all});
  });
}

void attention(const Call& c, Tensors& out) { forward(c, c.in[0], c.in[1], c.in[2], out[0], out[1]); }

void attention_grad(const Call& c, Tensors& out) {
  backward(c, {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.in[5], c.in[6]}, out[0], out[1], out[2]);
}

void self_attention(const Call& c, Tensors& out) {
  const int64_t heads = c.attrs.integer("heads");
  const auto part = [&](int64_t i) { return part_of(c.in[0], i, 3, heads); };
  forward(c, part(0), part(1), part(2), part_of(out[0], 0, 1, heads), out[1]);
}

void self_attention_grad(const Call& c, Tensors& out) {
  const int64_t heads = c.attrs.integer("heads");
  const auto part = [&](const Tensor& x, int64_t i) { return part_of(x, i, 3, heads); };
  const Tensor& qkv = c.in[2];
  backward(c,
           {part_of(c.in[0], 0, 1, heads), c.in[1], part(qkv, 0), part(qkv, 1), part(qkv, 2),
            part_of(c.in[3], 0, 1, heads), c.in[4]},
           part(out[0], 0), part(out[0], 1), part(out[0], 2));
}

}  // namespace

KernelTable attention_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"attention", attention},
      {"attention_grad", attention_grad},
      {"self_attention", self_attention},
      {"self_attention_grad", self_attention_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
