// What updates the elements of many parameters in one launch.
#pragma once
#include <memory>

#include "ops/cuda/elementwise.cuh"

namespace troupe::ops::on_cuda {

/// f(p, g, s...) for every element of a parameter, its gradient, scaled and rounded once, and N slots.
template <class T, int N, class F>
struct Pass {
  T* p;
  const T* g;
  T *s0, *s1, *s2;
  T scale;
  F f;
  template <class G>
  void visit(G&& v) {
    visit_pointers(v, p, g, s0, s1, s2);
    if constexpr (requires { f.visit(v); }) f.visit(v);
  }
  __device__ void operator()(int64_t i) const {
    const T grad = g[i] * scale;
    if constexpr (N == 0) f(p[i], grad);
    if constexpr (N == 1) f(p[i], grad, s0[i]);
    if constexpr (N == 2) f(p[i], grad, s0[i], s1[i]);
    if constexpr (N == 3) f(p[i], grad, s0[i], s1[i], s2[i]);
  }

  static constexpr int kPack = cuda::kPackOf<T>;
  bool can_pack() const {
    bool all = cuda::can_pack<kPack>(p) && cuda::can_pack<kPack>(g);
    for (const T* s : {s0, s1, s2}) all &= cuda::can_pack<kPack>(s);
    return all;
  }
  __device__ void pack(int64_t i) const {
    auto values = cuda::load_pack<kPack>(p + i);
    const auto grads = cuda::load_pack<kPack>(g + i);
    T* const slots[] = {s0, s1, s2};
    cuda::Pack<T, kPack> s[3];
    for (int k = 0; k < N; ++k) s[k] = cuda::load_pack<kPack>(slots[k] + i);
    for (int l = 0; l < kPack; ++l) {
      const T grad = grads.at[l] * scale;
      if constexpr (N == 0) f(values.at[l], grad);
      if constexpr (N == 1) f(values.at[l], grad, s[0].at[l]);
      if constexpr (N == 2) f(values.at[l], grad, s[0].at[l], s[1].at[l]);
      if constexpr (N == 3) f(values.at[l], grad, s[0].at[l], s[1].at[l], s[2].at[l]);
    }
    cuda::store_pack(p + i, values);
    for (int k = 0; k < N; ++k) cuda::store_pack(slots[k] + i, s[k]);
  }
};

/// The same for a parameter of halves, whose float32 master copy `f` updates, and of which it is rounded:
/// elements that the parameter no longer has as its master copy left them were written by somebody else, and
/// are taken over. The gradient is of halves, too, or float32: one of `g` and `wide_g` is null.
template <class H, int N, class F>
struct RoundedPass {
  H* p;
  float* master;
  const H* g;
  const float* wide_g;
  float *s0, *s1, *s2;
  float scale;
  F f;
  template <class G>
  void visit(G&& v) {
    visit_pointers(v, p, master, g, wide_g, s0, s1, s2);
    if constexpr (requires { f.visit(v); }) f.visit(v);
  }
  __device__ void operator()(int64_t i) const { some<1>(i); }

  static constexpr int kPack = cuda::kPackOf<float>;
  bool can_pack() const {
    bool all = cuda::can_pack<kPack>(p) && cuda::can_pack<kPack>(g);
    for (const float* x : {static_cast<const float*>(master), wide_g, static_cast<const float*>(s0),
                           static_cast<const float*>(s1), static_cast<const float*>(s2)})
      all &= cuda::can_pack<kPack>(x);
    return all;
  }
  __device__ void pack(int64_t i) const { some<kPack>(i); }

 private:
  template <int n>
  __device__ void some(int64_t i) const {
    auto halves = cuda::load_pack<n>(p + i);
    auto values = cuda::load_pack<n>(master + i);
    float grads[n];
    if (g) {
      const auto given = cuda::load_pack<n>(g + i);
      for (int l = 0; l < n; ++l) grads[l] = static_cast<float>(given.at[l]);
    } else {
      const auto given = cuda::load_pack<n>(wide_g + i);
      for (int l = 0; l < n; ++l) grads[l] = given.at[l];
    }
    float* const slots[] = {s0, s1, s2};
    cuda::Pack<float, n> s[3];
    for (int k = 0; k < N; ++k) s[k] = cuda::load_pack<n>(slots[k] + i);
    for (int l = 0; l < n; ++l) {
      float& value = values.at[l];
      if (H(value).bits != halves.at[l].bits) value = static_cast<float>(halves.at[l]);
      const float grad = grads[l] * scale;
      if constexpr (N == 0) f(value, grad);
      if constexpr (N == 1) f(value, grad, s[0].at[l]);
      if constexpr (N == 2) f(value, grad, s[0].at[l], s[1].at[l]);
      if constexpr (N == 3) f(value, grad, s[0].at[l], s[1].at[l], s[2].at[l]);
      halves.at[l] = H(value);
    }
    cuda::store_pack(p + i, halves);
    cuda::store_pack(master + i, values);
    for (int k = 0; k < N; ++k) cuda::store_pack(slots[k] + i, s[k]);
  }
};

/// Passes over several parameters in one launch. A block takes kOfBlock elements of one of them.
constexpr int64_t kOfBlock = 4096;
#ifdef TROUPE_SIM_CUDA
constexpr int kMostBytes = 1000;  // every thread gets a copy of its own
#else
constexpr int kMostBytes = 30000;  // arguments have 32764 at most
#endif
template <class P>
struct Passes {
  static constexpr int kMost = kMostBytes / static_cast<int>(sizeof(P) + 16);
  int count = 0;
  bool packs[kMost] = {};
  uint32_t first[kMost + 1] = {};  // blocks before each
  int64_t n[kMost] = {};
  P passes[kMost];
  template <class F>
  void visit(F&& f) {
    for (int i = 0; i < count; ++i) passes[i].visit(f);
  }
};
template <class P>
__global__ void each_pass(const __grid_constant__ Passes<P> all) {
  int low = 0, high = all.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (all.first[middle] <= blockIdx.x)
      low = middle;
    else
      high = middle - 1;
  }
  const P& pass = all.passes[low];
  const int64_t begin = static_cast<int64_t>(blockIdx.x - all.first[low]) * kOfBlock;
  const int64_t rest = all.n[low] - begin, n = rest < kOfBlock ? rest : kOfBlock;
  const int64_t packed = all.packs[low] ? n / P::kPack * P::kPack : 0;
  for (int64_t i = threadIdx.x * P::kPack; i < packed; i += blockDim.x * P::kPack) pass.pack(begin + i);
  for (int64_t i = packed + threadIdx.x; i < n; i += blockDim.x) pass(begin + i);
}

/// What is launched when passes of another kind come, or no more.
class Queue {
 public:
  Queue(const char* name, Device device) : name_(name), device_(device) {}
  template <class P>
  void add(int64_t n, const P& pass) {
    if (n == 0) return;
    auto* last = dynamic_cast<Kind<P>*>(waiting_.get());
    const int64_t blocks = (n + kOfBlock - 1) / kOfBlock;
    if (!last || last->all.count == Passes<P>::kMost || last->blocks() + blocks > INT32_MAX) {
      run();
      waiting_.reset(last = new Kind<P>);
    }
    Passes<P>& all = last->all;
    const int i = all.count++;
    all.n[i] = n;
    all.packs[i] = pass.can_pack();
    all.passes[i] = pass;
    all.first[i + 1] = static_cast<uint32_t>(all.first[i] + blocks);
  }
  void run() {
    if (waiting_) waiting_->launch(name_, device_);
    waiting_.reset();
  }

 private:
  struct AnyKind {
    virtual ~AnyKind() = default;
    virtual void launch(const char* name, Device device) const = 0;
  };
  template <class P>
  struct Kind final : AnyKind {
    Passes<P> all;
    int64_t blocks() const { return all.first[all.count]; }
    void launch(const char* name, Device device) const override {
      cuda::launch(name, device, each_pass<P>, dim3(all.first[all.count]), dim3(kThreads), 0, all);
    }
  };
  const char* name_;
  Device device_;
  std::unique_ptr<AnyKind> waiting_;
};

}  // namespace troupe::ops::on_cuda
