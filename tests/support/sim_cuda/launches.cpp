// Launches: what their arguments point to, and the addresses at which kernels see it.
#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/support/sim_cuda/machine.h"
#include "tests/support/sim_cuda/shim.h"

namespace sim_cuda {
namespace {

constexpr size_t kMostShared = 163 << 10;

// What the calling thread said of the pointers that it is going to launch with.
struct Noted {
  Extent extent;
  uint64_t launch;  // the next one when it was said
};
thread_local std::unordered_map<const void*, Noted> noted;
thread_local uint64_t launches = 0;
constexpr size_t kMostNoted = 256;

// The extents of a launch's pointers, in their order.
class Extents final : public Translator {
 public:
  std::vector<Extent> take() {
    if (noted.size() > kMostNoted) noted.clear();
    ++launches;
    return std::move(found_);
  }
  void* pointer(const void* given, bool) override {
    const auto at = noted.find(given);
    found_.push_back(at == noted.end() ? Extent{} : at->second.extent);
    return const_cast<void*>(given);
  }
  void object(void*, size_t) override {}

 private:
  std::vector<Extent> found_;
};

// Where the arguments of a launch lie, for an audit.
class SpanFinder final : public Translator {
 public:
  SpanFinder(Machine& m, const std::vector<Extent>& extents) : machine_(m), extents_(extents) {}
  void* pointer(const void* given, bool written) override {
    const Extent& extent = extents_.at(at_++);
    if (const Memory* memory = given ? machine_.memory_of(given) : nullptr)
      (written ? found.written : found.read).push_back(memory->span_of(given, extent));
    return const_cast<void*>(given);
  }
  void object(void*, size_t) override {}
  Spans found;

 private:
  Machine& machine_;
  const std::vector<Extent>& extents_;
  size_t at_ = 0;
};

// Arguments as kernels of one device see them.
class MachineTranslator final : public Translator {
 public:
  MachineTranslator(Machine& m, int device, const std::vector<Extent>& extents)
      : machine_(m), device_(device), extents_(extents) {}

  void* pointer(const void* given, bool written) override {
    const Extent& extent = extents_.at(static_cast<size_t>(argument_++));
    return given ? seen(given, extent, written) : nullptr;
  }
  void object(void* object, size_t bytes) override {
    auto* at = static_cast<std::byte*>(object);
    for (; bytes >= sizeof(void*); bytes -= sizeof(void*), at += sizeof(void*)) {
      void* word;
      std::memcpy(&word, at, sizeof word);
      const Memory* memory = machine_.memory_of(word);
      if (!memory || !memory->has(word)) continue;  // a number, or what was in a gap between two fields
      word = seen(word, {0, 0}, true);              // of which bytes is not known
      std::memcpy(at, &word, sizeof word);
    }
  }

 private:
  void* seen(const void* given, const Extent& extent, bool written) {
    const std::string what = "pointer number " + std::to_string(argument_) + " is to";
    Memory* memory = machine_.memory_of(given);
    if (!memory) {
      if (machine_.is_pinned(given)) return const_cast<void*>(given);
      throw Fault{what + " memory of the host"};
    }
    if (memory != machine_.memories[static_cast<size_t>(device_)].get())
      throw Fault{what + " memory of another device"};
    return memory->given(given, extent, written, what);
  }

  Machine& machine_;
  int device_, argument_ = 0;
  const std::vector<Extent>& extents_;
};

}  // namespace

cudaError_t enqueue(const char* name, cudaStream_t handle, dim3 grid, dim3 block, size_t shared_bytes,
                    std::unique_ptr<Kernel> kernel) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  if (m.sticky != cudaSuccess) return m.sticky;
  Stream* s = m.find(handle);
  int device = -1;
  if (!s) return cudaErrorInvalidResourceHandle;
  device = s->device;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64 || grid.x == 0 || grid.x > 0x7fffffff || grid.y == 0 ||
      grid.y > 65535 || grid.z == 0 || grid.z > 65535 || shared_bytes > kMostShared)
    return cudaErrorInvalidValue;  // as of an H200
  ++m.counters.launches;
  const std::shared_ptr<Kernel> kept = std::move(kernel);
  Extents extents;
  kept->translate(extents);
  const std::vector<Extent> taken = extents.take();
  if (m.audited) {
    SpanFinder finder(m, taken);
    const Kernel& what = *kept;
    kept->translate(finder);
    m.keep_kernel(name, typeid(what), finder.found, uint64_t{grid.x} * grid.y * grid.z, threads,
                  shared_bytes);
  }
  if (m.dry) return m.sticky;
  m.add(*s, {name, [&m, device, grid, block, shared_bytes, kept, known = taken] {
               MachineTranslator translator(m, device, known);
               kept->translate(translator);
               run_grid(grid, block, shared_bytes, *kept, m.eager ? nullptr : &m.random);
             }});
  return m.sticky;
}

void note_extent(const void* p, size_t before, size_t behind) {
  const auto [at, fresh] = noted.try_emplace(p, Noted{{before, behind}, launches});
  if (fresh) return;
  Noted& known = at->second;
  if (known.launch != launches) known = {{0, 0}, launches};  // of a launch before; here both count
  known.extent = {std::max(known.extent.before, before), std::max(known.extent.behind, behind)};
}

}  // namespace sim_cuda
