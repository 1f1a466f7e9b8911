// Convolutions as products on the matrix unit whose columns are nowhere in memory: a block copies the part of
// them that it multiplies next from the image into shared memory. Rows of a product are channels of the
// result, its columns are places.
#pragma once
#include "ops/cuda/conv.cuh"
#include "ops/cuda/flash_tiles.cuh"

namespace troupe::ops::on_cuda {

constexpr int kNowhere = -(1 << 30);  // of the sum of two of these, too, no image has a row or column

// Along one dimension: place p of the result and tap t of the window meet at p step + first + t tap of what
// is read, which has `size` elements. The place is the result's p target_step + target_first, the tap the
// weight's t weight_step + weight_first.
struct Along {
  int places, taps, size, step, first, tap, target_step, target_first, weight_step, weight_first;
};

// A convolution, or the gradient of its input, which is one itself. With strides, only some of the taps meet
// a place: places that have the same remainder by the stride, a class, have the same ones.
struct ConvView {
  ConvSizes s;
  bool of_input;     // the gradient
  int tap_steps[2];  // between taps of one class

  __host__ __device__ int64_t outputs() const { return of_input ? s.group_channels : s.group_outputs; }
  __host__ __device__ int64_t inputs() const { return of_input ? s.group_outputs : s.group_channels; }
  __host__ __device__ int classes() const {
    return of_input ? static_cast<int>(s.stride[0] * s.stride[1]) : 1;
  }
  __host__ __device__ int most_taps(int d) const {
    return static_cast<int>(of_input ? (s.kernel[d] + tap_steps[d] - 1) / tap_steps[d] : s.kernel[d]);
  }
  __host__ __device__ int most_places(int d) const {
    return static_cast<int>(of_input ? (s.in[d] + s.stride[d] - 1) / s.stride[d] : s.out[d]);
  }
  // Elements of a row of the weights as they are read: those of all taps, and zeros up to 16 bytes.
  __host__ __device__ int64_t row(int64_t chunk) const {
    const int64_t taps = inputs() * most_taps(0) * most_taps(1);
    return (taps + chunk - 1) / chunk * chunk;
  }
  __device__ Along along(int d, int number) const {
    const int stride = static_cast<int>(s.stride[d]), padding = static_cast<int>(s.padding[d]),
              dilation = static_cast<int>(s.dilation[d]), kernel = static_cast<int>(s.kernel[d]),
              in = static_cast<int>(s.in[d]), out = static_cast<int>(s.out[d]);
    if (!of_input) return {out, kernel, in, stride, -padding, dilation, 1, 0, 1, 0};
    const int rest = d == 0 ? number / static_cast<int>(s.stride[1]) : number % stride, step = tap_steps[d];
    Along a{(in - rest + stride - 1) / stride, 0,      out,  1,    0,
            -(step * dilation / stride),       stride, rest, step, 0};
    for (int i = 0; i < kernel && i < stride; ++i)
      if ((rest + padding - i * dilation) % stride == 0) {
        a.taps = (kernel - 1 - i) / step + 1, a.first = (rest + padding - i * dilation) / stride;
        a.weight_first = i;
        break;
      }
    return a;
  }
};

// What a tap adds to where a place is in the image; both are nowhere behind the last one.
struct alignas(16) Tap {
  int offset, y, x, unused;
};

template <class T>
__device__ __forceinline__ T at_tap(const T* place, int y, int x, const Tap& tap, int height, int width) {
  const bool inside = static_cast<unsigned>(y + tap.y) < static_cast<unsigned>(height) &&
                      static_cast<unsigned>(x + tap.x) < static_cast<unsigned>(width);
  return inside ? place[tap.offset] : T{};
}

// A product's result lies in shared memory so that 4 rows which a warp writes at once are in banks of their
// own.
template <int kN>
__device__ __forceinline__ float* staged_at(float* staged, int r, int c) {
  return staged + r * kN + (c ^ ((r & 3) << 3));
}
template <int kN, int kMt, int kNt>
__device__ __forceinline__ void stage(float* staged, const WarpTile<kMt, kNt>& sums, int row, int column) {
  const int l = lane_id(), g = l >> 2, t = l & 3;
#pragma unroll
  for (int m = 0; m < kMt; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int n = 0; n < kNt; ++n)
        *reinterpret_cast<float2*>(staged_at<kN>(staged, row + 16 * m + 8 * h + g, column + 8 * n + 2 * t)) =
            make_float2(sums.x[m][n][2 * h], sums.x[m][n][2 * h + 1]);
}

/// 8 warps, of which 2 have rows and 4 have columns of their own. kM channels by kN places, and kK taps at a
/// time: 128 bytes.
template <class T, int kMt>
struct ConvProduct {
  static constexpr int kThreads = 256, kM = 32 * kMt, kN = 128, kK = 128 / static_cast<int>(sizeof(T));
  static constexpr size_t kTiles = size_t{2} * (kM + kN) * kK * sizeof(T),
                          kShared = kTiles + 2 * kK * sizeof(Tap);
  static_assert(kM * kN * sizeof(float) <= kTiles);
  using Element = T;
  T* out;
  const T *weights, *from, *bias;  // weights: [class, group, output, row]
  ConvView v;
  int m_tiles, n_tiles;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, weights, from, bias);
  }

  // What is the block's, and what the thread's: a column and half of the taps.
  struct Part {
    Along down, across;
    int group, m0, taps;
    int64_t n0;
    const T* rows;
    const T* place;
    int y, x;
    T* target;
  };

  __device__ __forceinline__ void operator()(int64_t block, T* shared) const {
    Part p;
    if (!find(static_cast<int>(block), p)) return;
    Tap* const taps = reinterpret_cast<Tap*>(reinterpret_cast<char*>(shared) + kTiles);
    const int warp = static_cast<int>(threadIdx.x) / 32, row = warp % 2 * 16 * kMt, column = warp / 2 * 32;
    const int steps = (p.taps + kK - 1) / kK;
    const auto tile_a = [&](int k) { return shared + (k & 1) * (kM + kN) * kK; };
    const auto tile_b = [&](int k) { return tile_a(k) + kM * kK; };
    WarpTile<kMt, 4> sums;
    sums.clear();
    find_taps(p, 0, taps);
    find_taps(p, 1, taps);
    __syncthreads();
    Held held;
    if (steps > 0) {
      read_weights(p, 0, tile_a(0));
      read_columns(p, taps, held);
      write_columns(held, tile_b(0));
    }
    for (int k = 0; k < steps; ++k) {
      mu::wait_for_copies<0>();
      __syncthreads();
      if (k + 1 < steps) {
        read_weights(p, k + 1, tile_a(k + 1));
        read_columns(p, taps + ((k + 1) & 1) * kK, held);
        find_taps(p, k + 2, taps);
      }
      const WarpRows<T, kK, kMt, false> a(tile_a(k), row);
      add_scores_of(sums, a, tile_b(k) + column * kK);
      if (k + 1 < steps) write_columns(held, tile_b(k + 1));
    }
    __syncthreads();
    write(p, sums, reinterpret_cast<float*>(shared), row, column);
  }

 private:
  static constexpr int kParts = kK / 2 / kChunk<T>;  // chunks of 16 bytes that a thread copies
  struct Held {
    cuda::Pack<T, kChunk<T>> at[kParts];
  };
  static __device__ __forceinline__ int own_column() { return static_cast<int>(threadIdx.x) % kN; }
  static __device__ __forceinline__ int own_half() { return static_cast<int>(threadIdx.x) / kN; }

  // False if the block has nothing to do.
  __device__ __forceinline__ bool find(int block, Part& p) const {
    const int m_tile = block % m_tiles, n_tile = block / m_tiles % n_tiles, rest = block / m_tiles / n_tiles;
    const int groups = static_cast<int>(v.s.groups), number = rest / groups;
    p.group = rest % groups, p.m0 = m_tile * kM, p.n0 = int64_t{n_tile} * kN;
    p.down = v.along(0, number), p.across = v.along(1, number);
    p.taps = static_cast<int>(v.inputs()) * p.down.taps * p.across.taps;
    p.rows = weights + rest * v.outputs() * v.row(kChunk<T>);
    const int64_t plane = int64_t{p.down.places} * p.across.places, n = p.n0 + own_column();
    if (p.n0 >= v.s.n * plane) return false;
    p.place = from, p.target = nullptr, p.y = p.x = kNowhere;
    if (n >= v.s.n * plane) return true;
    const int64_t image = n / plane;
    const int at = static_cast<int>(n % plane), py = at / p.across.places, px = at % p.across.places;
    p.y = py * p.down.step + p.down.first, p.x = px * p.across.step + p.across.first;
    const int64_t channel = (image * v.s.groups + p.group) * v.inputs();
    p.place += (channel * p.down.size + p.y) * p.across.size + p.x;
    const int64_t height = v.of_input ? v.s.in[0] : v.s.out[0], width = v.of_input ? v.s.in[1] : v.s.out[1];
    const int64_t first = (image * v.s.groups + p.group) * v.outputs() + p.m0;
    p.target = out + (first * height + py * p.down.target_step + p.down.target_first) * width +
               px * p.across.target_step + p.across.target_first;
    return true;
  }

  // All threads take part in the taps of step k; nobody reads those of step k - 2 any more.
  __device__ __forceinline__ void find_taps(const Part& p, int k, Tap* taps) const {
    const int i = static_cast<int>(threadIdx.x), tap = k * kK + i;
    if (i >= kK) return;
    Tap found{0, kNowhere, kNowhere, 0};
    if (tap < p.taps) {
      const int tx = tap % p.across.taps, rest = tap / p.across.taps;
      found.y = rest % p.down.taps * p.down.tap, found.x = tx * p.across.tap;
      found.offset = (rest / p.down.taps * p.down.size + found.y) * p.across.size + found.x;
    }
    taps[(k & 1) * kK + i] = found;
  }

  __device__ __forceinline__ void read_weights(const Part& p, int k, T* to) const {
    const int64_t row = v.row(kChunk<T>), first = int64_t{k} * kK;
    const TileReader<T, kM, kK, kThreads> reader(p.rows + first, row, static_cast<int>(row - first));
    reader.read(to, p.m0, v.outputs() - p.m0);
    mu::commit_copies();
  }

  __device__ __forceinline__ void read_columns(const Part& p, const Tap* taps, Held& held) const {
    const Tap* const mine = taps + own_half() * (kK / 2);
#pragma unroll
    for (int c = 0; c < kParts; ++c)
#pragma unroll
      for (int e = 0; e < kChunk<T>; ++e)
        held.at[c].at[e] = at_tap(p.place, p.y, p.x, mine[c * kChunk<T> + e], p.down.size, p.across.size);
  }
  __device__ __forceinline__ void write_columns(const Held& held, T* to) const {
#pragma unroll
    for (int c = 0; c < kParts; ++c)
      cuda::store_pack(to + tile_at<T, kK>(own_column(), own_half() * kParts + c), held.at[c]);
  }

  __device__ __forceinline__ void write(const Part& p, const WarpTile<kMt, 4>& sums, float* staged, int row,
                                        int column) const {
    stage<kN>(staged, sums, row, column);
    __syncthreads();
    if (!p.target) return;
    const int64_t plane = v.of_input ? v.s.in[0] * v.s.in[1] : v.s.out[0] * v.s.out[1];
    const int rows = static_cast<int>(v.outputs()) - p.m0;
    const T* const add = bias ? bias + p.group * v.outputs() + p.m0 : nullptr;
    for (int r = own_half(); r < kM && r < rows; r += 2) {
      const float sum = *staged_at<kN>(staged, r, own_column());
      p.target[r * plane] = static_cast<T>(add ? sum + static_cast<float>(add[r]) : sum);
    }
  }
};

}  // namespace troupe::ops::on_cuda
