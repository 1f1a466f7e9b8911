#include "net/socket/shared/shared_ring.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "net/socket/shared/shared_memory.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kControlBytes = 4096;  // of the control block; the data begin behind it

}  // namespace

std::unique_ptr<SharedRing> SharedRing::make(size_t capacity) {
  capacity = std::bit_ceil(std::max(capacity, kControlBytes));
  Descriptor fd = make_shared_memory("troupe-ring", kControlBytes + capacity);
  if (!fd) return nullptr;
  auto ring = std::unique_ptr<SharedRing>(new SharedRing);
  if (!ring->map(fd.get(), capacity)) return nullptr;
  ring->fd_ = std::move(fd);
  return ring;
}

std::unique_ptr<SharedRing> SharedRing::open(const Descriptor& fd, size_t most, std::string& why) {
  const size_t size = shared_memory_size(fd, why);
  if (!size) return nullptr;
  if (size < 2 * kControlBytes || size - kControlBytes > most || !std::has_single_bit(size - kControlBytes))
    return why = fmt::format("it has {} bytes; expected {} and a power of two up to {}", size, kControlBytes,
                             most),
           nullptr;
  auto ring = std::unique_ptr<SharedRing>(new SharedRing);
  if (!ring->map(fd.get(), size - kControlBytes))
    return why = "it cannot be mapped: " + errno_text(errno), nullptr;
  return ring;
}

// The control block, the data, and the data again behind themselves.
bool SharedRing::map(int fd, size_t capacity) {
  void* all = ::mmap(nullptr, kControlBytes + 2 * capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return false;
  auto* base = static_cast<std::byte*>(all);
  memory_ = {reinterpret_cast<RingControl*>(base), base + kControlBytes, capacity};
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  return ::mmap(base, kControlBytes + capacity, kAccess, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED &&
         ::mmap(base + kControlBytes + capacity, capacity, kAccess, MAP_SHARED | MAP_FIXED, fd,
                kControlBytes) != MAP_FAILED;
}

SharedRing::~SharedRing() {
  if (memory_.control) ::munmap(memory_.control, kControlBytes + 2 * memory_.capacity);
}

}  // namespace troupe::internal::net
