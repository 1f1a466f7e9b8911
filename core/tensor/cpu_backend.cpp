// The host as a device.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/thread.h"
#include "core/memory/backend.h"
#include "core/memory/cpu_allocator.h"
#include "core/tensor/strided_runs.h"
#include "core/tensor/tensor.h"
#include "core/tensor/transposed_copy.h"

namespace troupe {
namespace {

// `to` is contiguous and shares no memory with `from`, which is not contiguous.
template <class T>
void gather_elements(T* to, const Tensor& from) {
  const T* in = from.data<T>();
  const Transposed transposed(from);
  for (int64_t i = 0; i < transposed.strips(); ++i) transposed.write(i, in, to);
  if (transposed.strips()) return;
  for_each_run(from, [&](int64_t at, int64_t count, int64_t step) {
    const T* source = in + at;
    T* const run = std::exchange(to, to + count);
    if (step == 1)
      std::copy_n(source, count, run);
    else if (step == 0)
      std::fill_n(run, count, *source);
    else
      for (int64_t i = 0; i < count; ++i) run[i] = source[i * step];
  });
}

// out = a + b, all contiguous; out may be a.
void add_contiguous(const Tensor& out, const Tensor& a, const Tensor& b) {
  visit_dtype(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* o = out.data<T>();
    const T* x = a.data<T>();
    const T* y = b.data<T>();
    for (int64_t i = 0, n = out.numel(); i < n; ++i) o[i] = static_cast<T>(x[i] + y[i]);
  });
}

// out += b, which is contiguous.
void add_strided(const Tensor& out, const Tensor& b) {
  visit_dtype(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* o = out.data<T>();
    const T* in = b.data<T>();
    for_each_run(out, [&](int64_t at, int64_t count, int64_t step) {
      for (int64_t i = 0; i < count; ++i) o[at + i * step] = static_cast<T>(o[at + i * step] + *in++);
    });
  });
}

class CpuBackend final : public Backend {
 public:
  const char* name() const override { return "cpu"; }
  int devices() const override { return 1; }
  std::string describe(Device) const override {
    return "the host, " + std::to_string(usable_cores()) + " cores";
  }

  void* allocate(size_t bytes, Device) override { return cpu_allocate(bytes); }
  void free(void* data, size_t bytes, Device, StreamId) noexcept override { cpu_free(data, bytes); }
  void copy(void* to, const void* from, size_t bytes, CopyWay, Device) override {
    if (bytes) std::memcpy(to, from, bytes);
  }
  void fill(void* to, int byte, size_t bytes, Device) override {
    if (bytes) std::memset(to, byte, bytes);
  }

  void copy_elements(const Tensor& to, const Tensor& from) override {
    const bool same = to.dtype() == from.dtype();
    if (same && to.is_contiguous()) {
      if (from.is_contiguous()) {
        if (to.nbytes()) std::memmove(to.bytes(), from.bytes(), to.nbytes());
        return;
      }
      if (to.storage() != from.storage())
        return visit_dtype(to.dtype(), [&](auto zero) {
          using T = decltype(zero);
          gather_elements(to.data<T>(), from);
        });
    }
    // Views of one storage may overlap: read all before the first write.
    const Tensor dense = from.storage() == to.storage() ? from.clone_data() : from.contiguous_data();
    visit_dtype(to.dtype(), [&](auto as) {
      visit_dtype(from.dtype(), [&](auto given) {
        const auto* in = dense.data<decltype(given)>();
        auto* out = to.data<decltype(as)>();
        if (to.is_contiguous()) {
          for (int64_t i = 0, n = to.numel(); i < n; ++i) out[i] = convert<decltype(as)>(in[i]);
          return;
        }
        for_each_run(to, [&](int64_t at, int64_t count, int64_t step) {
          for (int64_t i = 0; i < count; ++i) out[at + i * step] = convert<decltype(as)>(*in++);
        });
      });
    });
  }

  void fill_elements(const Tensor& to, const Scalar& value) override {
    visit_dtype(to.dtype(), [&](auto zero) {
      using T = decltype(zero);
      T* out = to.data<T>();
      const T filled = value.to<T>();
      for_each_run(to, [&](int64_t at, int64_t count, int64_t step) {
        for (int64_t i = 0; i < count; ++i) out[at + i * step] = filled;
      });
    });
  }

  void add_elements(const Tensor& out, const Tensor& a, const Tensor& b) override {
    if (!out.is_contiguous()) return add_strided(out, b.contiguous_data());
    if (a.is_contiguous() && b.is_contiguous()) return add_contiguous(out, a, b);
    add_contiguous(out, a.contiguous_data(), b.contiguous_data());
  }

  AllocatorStats stats(Device) const override {
    AllocatorStats stats = cpu_allocator_stats();
    stats.borrowed = Storage::borrowed_bytes();
    return stats;
  }
  void release_cached(Device) override { release_cached_cpu_memory(); }
};

// Never destroyed: tensors may outlive main.
union KeptBackend {
  CpuBackend backend;
  constexpr KeptBackend() : backend() {}
  constexpr ~KeptBackend() {}
};
constinit KeptBackend kept_backend;

}  // namespace

Backend& cpu_backend() { return kept_backend.backend; }

}  // namespace troupe
