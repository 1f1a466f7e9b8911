// The gradient of a convolution's weight as a product on the matrix unit, which sums over the places of all
// images: what the window sees goes from the image into shared memory and is nowhere else. Blocks sum over a
// part of the places each; their sums are added in order.
#pragma once
#include "ops/cuda/conv_tiles.cuh"

namespace troupe::ops::on_cuda {

/// The tile is kM outputs by kN weights of each, and kK places at a time: 128 bytes.
template <class T, int kMt>
struct ConvWeightProduct {
  static constexpr int kThreads = 256, kWarps = 8, kM = 32 * kMt, kN = 128,
                       kK = 128 / static_cast<int>(sizeof(T));
  static constexpr size_t kTiles = size_t{2} * (kM + kN) * kK * sizeof(T),
                          kShared = kTiles + kN * sizeof(Tap);
  static_assert(kM * kN * sizeof(float) <= kTiles);
  using Element = T;
  float* sums;  // [part, output, weight of one]
  const T *grad, *image;
  ConvSizes s;
  int m_tiles, n_tiles, parts;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, sums, grad, image);
  }

  struct Part {
    int m0, n0, group, number, begin, end;  // steps of kK places
  };

  __device__ __forceinline__ void operator()(int64_t block, T* shared) const {
    const Part p = find(static_cast<int>(block));
    Tap* const taps = reinterpret_cast<Tap*>(reinterpret_cast<char*>(shared) + kTiles);
    const int warp = static_cast<int>(threadIdx.x) / 32, row = warp % 2 * 16 * kMt, column = warp / 2 * 32;
    const auto tile_a = [&](int k) { return shared + (k & 1) * (kM + kN) * kK; };
    const auto tile_b = [&](int k) { return tile_a(k) + kM * kK; };
    WarpTile<kMt, 4> tile;
    tile.clear();
    find_taps(p, taps);
    __syncthreads();
    Held held;
    read(p, p.begin, taps, held);
    write_tiles(held, tile_a(p.begin), tile_b(p.begin));
    for (int k = p.begin; k < p.end; ++k) {
      __syncthreads();
      if (k + 1 < p.end) read(p, k + 1, taps, held);
      const WarpRows<T, kK, kMt, false> a(tile_a(k), row);
      add_scores_of(tile, a, tile_b(k) + column * kK);
      if (k + 1 < p.end) write_tiles(held, tile_a(k + 1), tile_b(k + 1));
    }
    __syncthreads();
    write(p, tile, reinterpret_cast<float*>(shared), row, column);
  }

 private:
  // A thread has the same 4 bytes of every eighth row.
  static constexpr int kEach = 4 / static_cast<int>(sizeof(T));
  struct Held {
    cuda::Pack<T, kEach> a[kM / kWarps], b[kN / kWarps];
  };
  // One of the places that are summed over.
  struct Place {
    const T *grad, *image;
    int y, x;
  };

  __device__ __forceinline__ int weights() const {
    return static_cast<int>(s.group_channels * s.kernel[0] * s.kernel[1]);
  }
  __device__ __forceinline__ int plane() const { return static_cast<int>(s.out[0] * s.out[1]); }

  __device__ __forceinline__ Part find(int block) const {
    const int m = block % m_tiles, n = block / m_tiles % n_tiles, rest = block / m_tiles / n_tiles;
    const int64_t steps = (s.n * plane() + kK - 1) / kK;
    const int number = rest % parts;
    return {m * kM,
            n * kN,
            rest / parts,
            number,
            static_cast<int>(steps * number / parts),
            static_cast<int>(steps * (number + 1) / parts)};
  }
  __device__ __forceinline__ void find_taps(const Part& p, Tap* taps) const {
    const int i = static_cast<int>(threadIdx.x), n = p.n0 + i;
    if (i >= kN) return;
    Tap found{0, kNowhere, kNowhere, 0};
    if (n < weights()) {
      const int width = static_cast<int>(s.kernel[1]), height = static_cast<int>(s.kernel[0]);
      const int tx = n % width, ty = n / width % height, channel = n / width / height;
      found.y = ty * static_cast<int>(s.dilation[0]), found.x = tx * static_cast<int>(s.dilation[1]);
      found.offset = (channel * static_cast<int>(s.in[0]) + found.y) * static_cast<int>(s.in[1]) + found.x;
    }
    taps[i] = found;
  }
  __device__ __forceinline__ Place place(const Part& p, int k, int e) const {
    const unsigned number = static_cast<unsigned>(k * kK + lane_id() * kEach + e);
    const unsigned all = static_cast<unsigned>(plane()), width = static_cast<unsigned>(s.out[1]);
    const unsigned im = number / all, at = number % all;
    if (im >= static_cast<unsigned>(s.n)) return {nullptr, image, kNowhere, kNowhere};
    const int y = static_cast<int>(at / width) * static_cast<int>(s.stride[0]) -
                  static_cast<int>(s.padding[0]),
              x = static_cast<int>(at % width) * static_cast<int>(s.stride[1]) -
                  static_cast<int>(s.padding[1]);
    const int64_t output = im * s.outputs + p.group * s.group_outputs + p.m0,
                  channel = im * s.channels + p.group * s.group_channels;
    return {grad + output * all + at, image + (channel * s.in[0] + y) * s.in[1] + x, y, x};
  }

  __device__ __forceinline__ void read(const Part& p, int k, const Tap* taps, Held& held) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, rows = static_cast<int>(s.group_outputs) - p.m0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const Place at = place(p, k, e);
#pragma unroll
      for (int i = 0; i < kM / kWarps; ++i) {
        const int r = warp + i * kWarps;
        held.a[i].at[e] = at.grad && r < rows ? at.grad[static_cast<int64_t>(r) * plane()] : T{};
      }
#pragma unroll
      for (int i = 0; i < kN / kWarps; ++i)
        held.b[i].at[e] = at_tap(at.image, at.y, at.x, taps[warp + i * kWarps], static_cast<int>(s.in[0]),
                                 static_cast<int>(s.in[1]));
    }
  }
  template <int kCount>
  static __device__ __forceinline__ void write_rows_of(const cuda::Pack<T, kEach> (&from)[kCount], T* to) {
    const int warp = static_cast<int>(threadIdx.x) / 32, l = lane_id();
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      cuda::store_pack(to + tile_at<T, kK>(warp + i * kWarps, l / 4) + l % 4 * kEach, from[i]);
  }
  static __device__ __forceinline__ void write_tiles(const Held& held, T* a, T* b) {
    write_rows_of(held.a, a);
    write_rows_of(held.b, b);
  }

  __device__ __forceinline__ void write(const Part& p, const WarpTile<kMt, 4>& tile, float* staged, int row,
                                        int column) const {
    stage<kN>(staged, tile, row, column);
    __syncthreads();
    const int c = static_cast<int>(threadIdx.x) % kN;
    const int64_t rows = s.group_outputs - p.m0;
    if (p.n0 + c >= weights()) return;
    float* const to =
        sums + ((p.number * s.outputs + p.group * s.group_outputs + p.m0) * weights() + p.n0 + c);
    for (int r = static_cast<int>(threadIdx.x) / kN; r < kM && r < rows; r += kThreads / kN)
      to[static_cast<int64_t>(r) * weights()] = *staged_at<kN>(staged, r, c);
  }
};

}  // namespace troupe::ops::on_cuda
