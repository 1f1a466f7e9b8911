#include "troupe/checkpoint/snapshot_room.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "core/base/mutex.h"
#include "core/memory/backend.h"
#include "core/memory/finite_memory.h"
#include "core/memory/pinned_buffer.h"

namespace troupe::internal {
namespace {

// Workers of a process take their snapshots at one time.
internal::Mutex rooms;
std::vector<std::pair<Device, size_t>> counted;  // by all of them

size_t& entry(std::vector<std::pair<Device, size_t>>& of, Device device) {
  auto at = std::ranges::find(of, device, &std::pair<Device, size_t>::first);
  if (at == of.end()) at = of.insert(of.end(), {device, 0});
  return at->second;
}

// The elements, on their way to the host; they are there once all `copies` have arrived.
Tensor fetched(const Tensor& t, std::vector<std::shared_ptr<PinnedBuffer>>& copies) {
  const auto pinned = t.nbytes() ? backend_of(t.device()).pinned_buffer(t.nbytes(), t.device()) : nullptr;
  if (!pinned) return t.data_on(cpu).contiguous_data();
  const Tensor rows = t.contiguous_data();
  rows.storage()->used_here();
  pinned->fetch(static_cast<const std::byte*>(rows.address()));
  copies.push_back(pinned);
  return Tensor(make_ref<TensorImpl>(Storage::wrap(pinned->data(), pinned->size(), pinned), rows.shape(),
                                     rows.shape().contiguous_strides(), 0, rows.dtype(), true));
}

}  // namespace

SnapshotRoom::~SnapshotRoom() {
  std::lock_guard lock(rooms);
  for (const auto& [device, bytes] : counted_) entry(counted, device) -= bytes;
}

bool SnapshotRoom::shares(Device device, size_t bytes) {
  const auto* memory = dynamic_cast<const FiniteMemory*>(&backend_of(device));
  if (!memory) return true;
  const size_t available = memory->available(device);
  std::lock_guard lock(rooms);
  size_t& all = entry(counted, device);
  // A tenth is for what lies in pieces, and for training itself.
  if (available < all || (available - all) / 11 * 10 < bytes) return false;
  all += bytes;
  entry(counted_, device) += bytes;
  return true;
}

OwnedState SnapshotRoom::take(OwnedState snapshot) {
  std::vector<std::pair<Device, size_t>> needed;
  const auto each = [&](const auto& f) {
    for (StateDict* part : {&snapshot.model, &snapshot.rest})
      for (auto& [name, t] : *part)
        if (!t.device().is_cpu()) f(t);
  };
  each([&](const Tensor& t) { entry(needed, t.device()) += t.nbytes(); });
  std::erase_if(needed, [this](const auto& of) { return shares(of.first, of.second); });
  std::vector<std::shared_ptr<PinnedBuffer>> copies;
  each([&](Tensor& t) {
    if (std::ranges::find(needed, t.device(), &std::pair<Device, size_t>::first) != needed.end())
      t = fetched(t, copies);
  });
  for (const auto& copy : copies) copy->arrived(copy->size());
  return snapshot;
}

}  // namespace troupe::internal
