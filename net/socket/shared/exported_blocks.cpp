#include "net/socket/shared/exported_blocks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/memory/arena.h"
#include "net/socket/shared/shared_memory.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kPart = 32;  // a view of less than this part of its block would keep too much

static_assert(ExportTable::kSlots < (size_t{1} << (64 - ExportPlace::kOffsetBits)));

bool has_hung_up(const Descriptor& pipe) {
  pollfd p{pipe.get(), 0, 0};
  return ::poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
}

}  // namespace

std::shared_ptr<ExportTable> ExportTable::map(const Descriptor& fd) {
  void* p = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) return nullptr;
  return std::shared_ptr<ExportTable>(new ExportTable(static_cast<std::atomic<uint32_t>*>(p)));
}

ExportTable::~ExportTable() { ::munmap(words_, kBytes); }

ExportedBlocks::ExportedBlocks(std::shared_ptr<ExportTable> table, Descriptor table_fd, Descriptor lease,
                               Descriptor receivers_lease, size_t most)
    : table_(std::move(table)),
      table_fd_(std::move(table_fd)),
      lease_(std::move(lease)),
      receivers_lease_(std::move(receivers_lease)),
      most_(most) {}

std::shared_ptr<ExportedBlocks> ExportedBlocks::create(size_t most, std::string& why) {
  if (!Arena::of_process()) return why = "this process has no arena", nullptr;
  Descriptor fd = make_shared_memory("troupe-exports", ExportTable::kBytes);
  std::array<int, 2> ends{};
  if (!fd || ::pipe2(ends.data(), O_CLOEXEC) != 0) return why = errno_text(errno), nullptr;
  Descriptor lease(ends[0]), receivers(ends[1]);
  auto table = ExportTable::map(fd);
  if (!table) return why = errno_text(errno), nullptr;
  std::shared_ptr<ExportedBlocks> made(
      new ExportedBlocks(std::move(table), std::move(fd), std::move(lease), std::move(receivers), most));
  add_lender(made);
  return made;
}

bool ExportedBlocks::lies_well(const Buffer& b) {
  return !b.pinned && !b.storage->wrapped() && Arena::of_process() && Arena::has(b.data()) &&
         reinterpret_cast<uintptr_t>(b.data()) % ExportPlace::kAlignment == 0 &&
         b.size >= b.storage->block_bytes() / kPart;
}

bool ExportedBlocks::has_room(size_t size) {
  Storages over;
  std::lock_guard lock(mutex_);
  return fits(size, over);
}

// With mutex_; storages are let go of without it.
bool ExportedBlocks::fits(size_t size, Storages& over) {
  const auto room = [&] {
    return (!free_.empty() || lent_.size() < ExportTable::kSlots) && lent_bytes_ + size <= most_;
  };
  if (!room()) sweep(over);
  return room() && !retired_;
}

std::optional<uint64_t> ExportedBlocks::lend(const Buffer& b) {
  Storages over;
  std::lock_guard lock(mutex_);
  if (!fits(b.size, over)) return {};
  Ref<Storage> share = b.storage->share(b.offset, b.size);
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(lent_.size()));
    lent_.emplace_back();
  }
  const uint32_t slot = free_.back();
  out_.push_back(slot);
  free_.pop_back();
  lent_[slot] = std::move(share);
  lent_bytes_ += lent_[slot]->size();
  table_->at(slot).store(1, std::memory_order_relaxed);  // who is told of it sees this
  return ExportPlace{slot, Arena::of_process()->offset_of(b.data())}.word();
}

void ExportedBlocks::take_back(uint64_t word) {
  table_->at(ExportPlace::of(word).slot).store(0, std::memory_order_release);
}

// With mutex_; storages are let go of without it.
void ExportedBlocks::sweep(Storages& over) {
  const bool unmapped = retired_ && has_hung_up(lease_);
  std::erase_if(out_, [&](uint32_t slot) {
    if (!unmapped && table_->at(slot).load(std::memory_order_acquire)) return false;
    lent_bytes_ -= lent_[slot]->size();
    over.push_back(std::move(lent_[slot]));
    free_.push_back(slot);
    return true;
  });
}

bool ExportedBlocks::collect() {
  Storages over;
  std::lock_guard lock(mutex_);
  if (!out_.empty()) sweep(over);
  return !retired_ || !out_.empty();
}

void ExportedBlocks::retire() {
  std::lock_guard lock(mutex_);
  retired_ = true;
}

size_t ExportedBlocks::lent_bytes() const {
  std::lock_guard lock(mutex_);
  return lent_bytes_;
}

}  // namespace troupe::internal::net
