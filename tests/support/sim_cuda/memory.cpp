#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/support/sim_cuda/machine.h"

namespace sim_cuda {
namespace {

constexpr size_t kSpace = size_t{64} << 30;  // of addresses: pages come when they are used
constexpr size_t kGrain = 256;

// Where kernels see the memories of devices.
std::vector<const std::byte*> mapped;

std::byte* map(int file, int protection) {
  void* p = mmap(nullptr, kSpace, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (p == MAP_FAILED) {
    std::perror("simulated GPU: mmap");
    std::abort();
  }
  return static_cast<std::byte*>(p);
}

size_t rounded(size_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

void set(std::byte* to, unsigned char value, size_t bytes) {
  if (!Machine::get().dry) std::memset(to, value, bytes);
}

}  // namespace

bool is_of_device(const void* p) {
  for (const std::byte* begin : mapped)
    if (p >= begin && p < begin + kSpace) return true;
  return false;
}

Memory::Memory(int device) : device_(device) {
  file_ = memfd_create("simulated GPU", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, kSpace) != 0) {
    std::perror("simulated GPU: memfd_create");
    std::abort();
  }
  forbidden_ = map(file_, PROT_NONE);
  readable_ = map(file_, PROT_READ);
  writable_ = map(file_, PROT_READ | PROT_WRITE);
  mapped.insert(mapped.end(), {readable_, writable_});
  limit = size_t{8} << 30;
  if (const char* mib = std::getenv("TROUPE_SIM_MEMORY")) limit = std::strtoull(mib, nullptr, 10) << 20;
}

void* Memory::take(size_t bytes, cudaStream_t stream) {
  const size_t slot = rounded(bytes) + kGrain;
  auto& kept = free_[slot];
  size_t offset = next_;
  // The stream's own blocks are free in its order; those of others once that has come.
  const auto fits = [&](const Free& f) { return f.stream == stream || blocks_.at(f.offset).ends == 0; };
  const auto found = std::find_if(kept.rbegin(), kept.rend(), fits);
  if (found != kept.rend()) {
    if (found->trimmed && reserved + slot > limit) return nullptr;
    if (found->trimmed) reserved += slot, ++Machine::get().counters.grown;
    offset = found->offset;
    kept.erase(std::next(found).base());
  } else {
    if (reserved + slot > limit || slot > kSpace - next_) return nullptr;
    next_ += slot;
    reserved += slot;
    ++Machine::get().counters.grown;
  }
  Block& b = blocks_[offset];
  b.slot = slot;
  b.wanted = bytes;
  b.asked = true;
  used += slot;
  used_high = std::max(used_high, used);
  uint64_t& most = Machine::get().counters.most_used;
  most = std::max<uint64_t>(most, used);
  reserved_high = std::max(reserved_high, reserved);
  return forbidden_ + offset;
}

bool Memory::give(void* data, cudaStream_t stream) {
  if (!holds(data)) return false;
  const auto found = blocks_.find(offset_of(data));
  if (found == blocks_.end() || !found->second.asked) return false;
  found->second.asked = false;
  ++found->second.ends;
  used -= found->second.slot;
  free_[found->second.slot].push_back({found->first, stream});
  return true;
}

void Memory::begin(void* data, size_t bytes) {
  const size_t offset = offset_of(data);
  Block& b = blocks_.at(offset);
  b.living = true;
  b.guarded = !Machine::get().dry;
  b.bytes = bytes;
  b.history.clear();
  touch(offset, b, offset, offset + bytes, true);
  set(writable_ + offset, kPoison, b.bytes);
  set(writable_ + offset + b.bytes, kGuard, b.slot - b.bytes);
}

void Memory::end(void* data) {
  const size_t offset = offset_of(data);
  Block& b = blocks_.at(offset);
  b.living = false;
  --b.ends;
  const auto is_guard = [](std::byte x) { return x == std::byte{kGuard}; };
  if (b.guarded && !std::all_of(readable_ + offset + b.bytes, readable_ + offset + b.slot, is_guard))
    throw Fault{"something wrote behind an allocation of " + std::to_string(b.bytes) + " bytes on device " +
                std::to_string(device_)};
  set(writable_ + offset, kPoison, b.bytes);
  touch(offset, b, offset, offset + b.bytes, true);
}

void Memory::touch(size_t offset, Block& b, size_t begin, size_t end, bool written) {
  const Machine& m = Machine::get();
  const Stream& s = *m.running;
  b.history.add({begin - offset, end - offset, written, s.number, s.clock.of(s.number), m.running_task},
                s.clock, b.bytes);
}

bool Memory::holds(const void* p) const {
  const auto* at = static_cast<const std::byte*>(p);
  return at >= forbidden_ && at < forbidden_ + kSpace;
}

bool Memory::has(const void* p) const {
  const size_t offset = offset_of(p);
  const auto next = blocks_.upper_bound(offset);
  if (next == blocks_.begin()) return false;
  const auto& [first, block] = *std::prev(next);
  return block.living && offset <= first + block.bytes;
}

std::pair<const size_t, Memory::Block>& Memory::block_at(const void* p, size_t bytes,
                                                         const std::string& what) {
  const size_t offset = offset_of(p);
  auto found = blocks_.upper_bound(offset);
  if (found == blocks_.begin()) throw Fault{what + " memory that was never allocated"};
  --found;
  const Block& b = found->second;
  const size_t end = found->first + b.bytes;
  if (!b.living && offset < found->first + b.slot)
    throw Fault{what +
                " memory that is not allocated at that time: freed before, or allocated on another stream "
                "that was not waited for"};
  if (offset > end || bytes > end - offset)
    throw Fault{what + " " + std::to_string(bytes) + " bytes at " + std::to_string(offset - found->first) +
                " of an allocation of " + std::to_string(b.bytes)};
  return *found;
}

void* Memory::seen(const void* p, size_t bytes, bool written, const std::string& what) {
  auto& [first, block] = block_at(p, bytes, what);
  const size_t offset = offset_of(p);
  touch(first, block, offset, offset + bytes, written);
  return (written ? writable_ : readable_) + offset;
}

void* Memory::given(const void* p, const Extent& bytes, bool written, const std::string& what) {
  auto& [first, block] = block_at(p, 0, what);
  const size_t offset = offset_of(p);
  touch(first, block, offset - std::min(bytes.before, offset - first),
        offset + std::min(bytes.behind, first + block.bytes - offset), written);
  return (written ? writable_ : readable_) + offset;
}

std::pair<uintptr_t, uintptr_t> Memory::span_of(const void* p, const Extent& bytes) const {
  const size_t offset = offset_of(p);
  const auto next = blocks_.upper_bound(offset);
  const auto at = reinterpret_cast<uintptr_t>(p);
  if (next == blocks_.begin()) return {at, at};
  const auto& [first, block] = *std::prev(next);
  const size_t end = first + block.wanted;
  return {at - std::min(bytes.before, offset - first),
          at + std::min(bytes.behind, end > offset ? end - offset : 0)};
}

void Memory::trim() {
  for (auto& [slot, kept] : free_)
    for (Free& f : kept) {
      if (f.trimmed || blocks_.at(f.offset).ends != 0) continue;
      f.trimmed = true;
      reserved -= slot;
      const size_t from = (f.offset + 4095) / 4096 * 4096, to = (f.offset + slot) / 4096 * 4096;
      if (from < to)
        fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                  static_cast<off_t>(to - from));
    }
}

}  // namespace sim_cuda
