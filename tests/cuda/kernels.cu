#include "tests/cuda/kernels.h"

#include "core/cuda/launch.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"

namespace troupe::testing {
namespace {

__global__ void scale_kernel(float* out, const float* in, float by, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * by;
}

struct Scaling {
  const float* in;
  float* out;
  float by;
  int64_t n;

  template <class F>
  void visit(F&& f) {
    f(in);
    f(out);
  }
};

__global__ void scale_object_kernel(Scaling s) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < s.n) s.out[i] = s.in[i] * s.by;
}

template <bool kBarrier>
__device__ float sum_shared(float* shared, float mine) {
  shared[threadIdx.x] = mine;
  if (kBarrier) __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    if (kBarrier) __syncthreads();
  }
  return shared[0];
}

template <bool kBarrier>
__global__ void sum_blocks_kernel(float* out, const float* in) {
  DYNAMIC_SHARED(float, shared);
  const float sum = sum_shared<kBarrier>(shared, in[blockIdx.x * blockDim.x + threadIdx.x]);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void sum_blocks_static_kernel(float* out, const float* in) {
  __shared__ float shared[1024];
  const float sum = sum_shared<true>(shared, in[blockIdx.x * blockDim.x + threadIdx.x]);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void sum_warps_kernel(float* out, const float* in) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = in[i];
  for (int with = 16; with > 0; with /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, with);
  out[i] = sum;
}

// The sum over a block of what its warps have summed. Warps that are behind may still read `parts` when others
// come back with the next sum.
__device__ float sum_by_warps(float* parts, float mine) {
  for (int with = 16; with > 0; with /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, with);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += parts[w];
  return sum;
}
__global__ void sum_twice_kernel(float* out, const float* in, bool apart) {
  __shared__ float parts[2][32];
  const float x = in[threadIdx.x], once = sum_by_warps(parts[0], x);
  out[threadIdx.x] = sum_by_warps(parts[apart], x * 2) + once;
}

__global__ void count_kernel(int* counts, const int* in, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) atomicAdd(&counts[in[i]], 1);
}

__global__ void wait_apart_kernel() {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncthreads();
}

__global__ void missing_lanes_kernel() {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __syncthreads();
}

__global__ void nothing_kernel() {}

using cuda::elements;

struct SecondStream {
  explicit SecondStream(Device device) : device(device) {
    cuda::use(device);
    cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream", device);
    cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event", device);
  }
  ~SecondStream() {
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    cudaEventDestroy(event);
  }
  // `later` goes on when what is on `earlier` now is done.
  void order(cudaStream_t later, cudaStream_t earlier) {
    cuda::check(cudaEventRecord(event, earlier), "recording", device);
    cuda::check(cudaStreamWaitEvent(later, event, 0), "waiting", device);
  }
  Device device;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
};

}  // namespace

void scale(const Tensor& out, const Tensor& in, float by, int64_t n) {
  cuda::launch("scale", out.device().is_cpu() ? in.device() : out.device(), scale_kernel,
               cuda::blocks_for(static_cast<size_t>(n), 128), dim3(128), 0, elements<float>(out),
               elements<float>(in), by, n);
}

void scale_by_object(const Tensor& out, const Tensor& in, float by) {
  cuda::launch("scale_by_object", out.device(), scale_object_kernel,
               cuda::blocks_for(static_cast<size_t>(out.numel()), 128), dim3(128), 0,
               Scaling{elements<float>(in), elements<float>(out), by, out.numel()});
}

void sum_blocks(const Tensor& out, const Tensor& in, unsigned block, SharedBy shared) {
  const bool fixed = shared == SharedBy::static_memory;
  cuda::launch("sum_blocks", out.device(),
               fixed                                ? sum_blocks_static_kernel
               : shared == SharedBy::dynamic_memory ? sum_blocks_kernel<true>
                                                    : sum_blocks_kernel<false>,
               dim3(static_cast<unsigned>(in.numel()) / block), dim3(block),
               fixed ? 0 : block * sizeof(float), elements<float>(out), elements<float>(in));
}

void sum_warps(const Tensor& out, const Tensor& in) {
  cuda::launch("sum_warps", out.device(), sum_warps_kernel, dim3(static_cast<unsigned>(in.numel()) / 64),
               dim3(64), 0, elements<float>(out), elements<float>(in));
}

void sum_twice(const Tensor& out, const Tensor& in, bool apart) {
  cuda::launch("sum_twice", out.device(), sum_twice_kernel, dim3(1), dim3(static_cast<unsigned>(in.numel())), 0,
               elements<float>(out), elements<const float>(in), apart);
}

void count(const Tensor& counts, const Tensor& in) {
  cuda::launch("count", counts.device(), count_kernel, cuda::blocks_for(static_cast<size_t>(in.numel()), 64),
               dim3(64), 0, elements<int32_t>(counts), elements<int32_t>(in), static_cast<int>(in.numel()));
}

void wait_apart(Device device) {
  cuda::launch("wait_apart", device, wait_apart_kernel, dim3(1), dim3(64), 0);
}
void wait_for_missing_lanes(Device device) {
  cuda::launch("wait_for_missing_lanes", device, missing_lanes_kernel, dim3(1), dim3(32), 0);
}
void launch_with(Device device, unsigned blocks, unsigned threads, size_t shared_bytes) {
  cuda::launch("nothing", device, nothing_kernel, dim3(blocks), dim3(threads), shared_bytes);
}

float read_on_second_stream(Device device, bool waits) {
  SecondStream second(device);
  const cudaStream_t first = cuda::stream_of(device);
  const Tensor t = empty({1000}, {float32, device}), seen = empty({1000}, {float32, device});
  fill_elements(t, 1);
  second.order(second.stream, first);  // both are allocated
  scale(t, t, 3, 1000);
  if (waits) second.order(second.stream, first);
  cuda::check(
      cudaMemcpyAsync(seen.address(), t.address(), t.nbytes(), cudaMemcpyDeviceToDevice, second.stream),
      "copying", device);
  second.order(first, second.stream);
  fill_elements(t, 2);
  cuda::check(cudaEventRecord(second.event, first), "recording", device);  // nobody waits for this one
  return static_cast<float>(seen.alias({}, {}, 0).item());
}

void write_halves(Device device, int64_t overlap) {
  SecondStream second(device);
  const Tensor t = empty({1000}, {float32, device});
  second.order(second.stream, cuda::stream_of(device));  // it is allocated
  scale(t.alias({500}, {1}, 0), t.alias({500}, {1}, 0), 2, 500);
  const int64_t from = 500 - overlap;
  cuda::check(cudaMemsetAsync(t.address() + from * 4, 0, static_cast<size_t>(1000 - from) * 4, second.stream),
              "filling", device);
  second.order(cuda::stream_of(device), second.stream);  // before it is freed
}

float read_after_the_host_waited(Device device) {
  SecondStream second(device);
  const cudaStream_t first = cuda::stream_of(device);
  const Tensor t = ones({1000}, {float32, device}), seen = empty({1000}, {float32, device});
  scale(t, t, 3, 1000);
  cuda::check(cudaStreamSynchronize(first), "waiting", device);
  cuda::check(
      cudaMemcpyAsync(seen.address(), t.address(), t.nbytes(), cudaMemcpyDeviceToDevice, second.stream),
      "copying", device);
  second.order(first, second.stream);
  return static_cast<float>(seen.alias({}, {}, 0).item());
}

void free_before_second_stream(Device device) {
  SecondStream second(device);
  const Tensor seen = empty({1000}, {float32, device});
  {
    const Tensor t = ones({1000}, {float32, device});
    second.order(second.stream, cuda::stream_of(device));
    cuda::check(
        cudaMemcpyAsync(seen.address(), t.address(), t.nbytes(), cudaMemcpyDeviceToDevice, second.stream),
        "copying", device);
  }
  cudaStreamSynchronize(cuda::stream_of(device));
}

}  // namespace troupe::testing
