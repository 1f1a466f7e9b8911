#include "tests/support/null_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/memory/backend.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::testing {
namespace {

constexpr size_t kBytes = size_t{8} << 30;  // of address space: pages come when they are used

// One memory, mapped twice: tensors have the address at which nothing can be read or written.
class Memory {
 public:
  Memory() {
    const int file = memfd_create("null device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, kBytes) != 0) throw std::bad_alloc();
    forbidden_ = map(file, PROT_NONE);
    seen_ = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }

  std::byte* seen(const void* forbidden) const {
    const auto* p = static_cast<const std::byte*>(forbidden);
    if (p < forbidden_ || p >= forbidden_ + kBytes) throw_invalid("[null device] got a pointer of the host");
    return seen_ + (p - forbidden_);
  }

  void* take(size_t bytes) {
    if (bytes > limit) throw std::bad_alloc();
    std::lock_guard lock(mutex_);
    bytes = rounded(bytes);
    in_use_ += bytes;
    auto& free = free_[bytes];
    if (!free.empty()) {
      void* p = free.back();
      free.pop_back();
      return p;
    }
    if (bytes > kBytes - next_) throw std::bad_alloc();
    void* p = forbidden_ + next_;
    next_ += bytes;
    return p;
  }

  void give(void* p, size_t bytes) {
    std::memset(seen(p), 0x5a, bytes);  // whoever reads it then reads nonsense
    std::lock_guard lock(mutex_);
    bytes = rounded(bytes);
    in_use_ -= bytes;
    free_[bytes].push_back(p);
  }

  size_t in_use() {
    std::lock_guard lock(mutex_);
    return in_use_;
  }
  std::atomic<size_t> limit{kBytes};

 private:
  static size_t rounded(size_t bytes) { return (std::max<size_t>(bytes, 1) + 63) / 64 * 64; }
  static std::byte* map(int file, int protection) {
    void* p = mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(p);
  }

  std::byte *forbidden_, *seen_;
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  size_t next_ = 0, in_use_ = 0;
};

Memory& memory() {
  static auto* instance = new Memory;
  return *instance;
}

// The same elements at the address where the host sees them; `t` outlives it.
Tensor seen(const Tensor& t) {
  if (!t.defined() || t.device().kind != kNull) return t;
  const TensorImpl& impl = *t.impl();
  Ref<Storage> storage = Storage::wrap(memory().seen(t.storage()->data()), t.storage()->size(),
                                       std::shared_ptr<void>(&memory(), [](void*) {}));
  return Tensor(make_ref<TensorImpl>(std::move(storage), impl.shape, impl.strides, impl.offset, impl.dtype,
                                     impl.contiguous));
}

Tensors seen(std::span<const Tensor> all) {
  Tensors out;
  for (const Tensor& t : all) out.push_back(seen(t));
  return out;
}

class NullBackend final : public Backend {
 public:
  const char* name() const override { return "null"; }
  int devices() const override { return 2; }
  std::string describe(Device) const override { return "memory of the host that the host cannot touch"; }
  void* allocate(size_t bytes, Device) override { return memory().take(bytes); }
  void free(void* data, size_t bytes, Device, StreamId) noexcept override { memory().give(data, bytes); }
  void copy(void* to, const void* from, size_t bytes, CopyWay way, Device) override {
    std::memcpy(way == CopyWay::to_host ? to : memory().seen(to),
                way == CopyWay::from_host ? from : memory().seen(from), bytes);
  }
  void fill(void* to, int byte, size_t bytes, Device) override {
    std::memset(memory().seen(to), byte, bytes);
  }
  void copy_elements(const Tensor& to, const Tensor& from) override {
    // Distinct storages that see one memory overlap unnoticed: a copy of the source cannot.
    const Tensor source = seen(from);
    cpu_backend().copy_elements(seen(to), to.storage() == from.storage() ? source.clone_data() : source);
  }
  void fill_elements(const Tensor& to, const Scalar& value) override {
    cpu_backend().fill_elements(seen(to), value);
  }
  void add_elements(const Tensor& out, const Tensor& a, const Tensor& b) override {
    cpu_backend().add_elements(seen(out), seen(a), seen(b));
  }
  AllocatorStats stats(Device) const override { return {.in_use = memory().in_use()}; }
};

void run(ops::Kernel* kernel, const ops::Call& call, Tensors& out) {
  const Tensors in = seen(call.in);
  Tensors results = seen(out);
  const Tensors before = results;
  kernel({call.op, in, call.attrs}, results);
  for (size_t i = 0; i < out.size(); ++i)
    if (!results[i].is_same(before[i]))
      throw_invalid("[null device] the kernel of " + std::string(call.op.name) + " replaced a result");
}

const ops::KernelEntry& on_cpu(const ops::Op& op) { return *ops::find_kernels(op, Device::Kind::cpu); }
void through(const ops::Call& call, Tensors& out) { run(on_cpu(call.op).kernel, call, out); }
void through_accumulating(const ops::Call& call, Tensors& out) {
  run(on_cpu(call.op).accumulating, call, out);
}

std::vector<ops::KernelEntry>& entries() {
  static std::vector<ops::KernelEntry> all = [] {
    std::vector<ops::KernelEntry> made;
    for (const ops::KernelTable table : ops::cpu_kernels())
      for (const ops::KernelEntry& e : table)
        made.push_back({e.op, through, e.accumulating ? through_accumulating : nullptr});
    return made;
  }();
  return all;
}

}  // namespace

void install_null_device() {
  static NullBackend backend;
  static const ops::KernelTable tables[] = {entries()};
  set_backend(kNull, backend);
  ops::set_kernels(kNull, tables);
}

size_t null_bytes_in_use() { return memory().in_use(); }

NullMemoryLimit::NullMemoryLimit(size_t bytes) { memory().limit = bytes; }
NullMemoryLimit::~NullMemoryLimit() { memory().limit = kBytes; }

}  // namespace troupe::testing
