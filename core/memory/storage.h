// The bytes behind tensors.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/memory/backend.h"
#include "core/memory/ref.h"
#include "core/memory/stream_uses.h"

namespace troupe {

/// A run of bytes on one device, shared by the tensors that are views of it. 64-byte aligned on the CPU.
///
/// `version` counts in-place writes, so that a backward pass can tell that what it saved was changed, and by
/// whom.
///
/// Storages that share() made have the same bytes as long as nobody writes: whoever does takes a copy first
/// (own_bytes(), which begin_write() calls), and data() is another pointer then.
class Storage : public RefCounted {
 public:
  /// Uninitialized bytes from the allocator of the device, on the CPU a caching one. Throws `invalid` above
  /// kMaxBytes, std::bad_alloc if there are no more, `unimplemented` if the program was not built with the
  /// device's kind.
  static Ref<Storage> allocate(size_t bytes, Device device = cpu);
  /// Wraps memory that `owner` keeps alive (a mapped file, another library's buffer).
  static Ref<Storage> wrap(void* data, size_t bytes, std::shared_ptr<void> owner);

  /// The same for memory of another process, which has promised not to write there: what is used as an
  /// address or a size is to be copied first. It cannot be written here, so it counts as shared: whoever
  /// writes takes a copy first.
  static Ref<Storage> borrow(void* data, size_t bytes, std::shared_ptr<void> owner);

  /// Another storage with a version of its own and, until either of both is written to, bytes [from, from +
  /// bytes) of this one. `from` is a multiple of 64. Other threads may read and share meanwhile.
  Ref<Storage> share(size_t from, size_t bytes);
  /// Before a write: copies the bytes if somebody else has them, too. Two that share may do so at the same
  /// time, each on its thread.
  void own_bytes() {
    if (shared_.load(std::memory_order_relaxed)) [[unlikely]]
      leave_shared();
  }
  /// Before a write of every byte: as own_bytes(), but new bytes are left as they come. What was here before,
  /// for whoever computes the new values from it; null if nobody else had it, or on a device: then it is
  /// still here.
  Ref<Storage> own_new_bytes();
  /// Whether another storage, or another process, has these bytes, too.
  bool shares_bytes() const;
  /// Bytes of the allocation that these are, or are part of: so many stay as long as this storage.
  size_t block_bytes() const;
  /// Whether the memory is somebody else's (wrap()), who may look at what is written there, or write.
  bool wrapped() const { return exposed_.load(std::memory_order_relaxed) || (owner_ && !borrowed_); }
  /// Says that somebody keeps pointers to these bytes and writes whenever they like: they count as wrapped
  /// from now on, and whoever shares them has a copy first. Not synchronized: as a write.
  void expose() {
    own_bytes();
    exposed_.store(true, std::memory_order_relaxed);
  }

  /// The first byte. An address on the device: the host reads and writes there if is_cpu() only.
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  Device device() const { return device_; }
  /// On a device: before the calling thread asks for work there that reads, or writes, the bytes; and as they
  /// go to another actor (StreamUses).
  void used_here() const {
    if (uses_) uses_->read();
  }
  void written_here() const {
    if (uses_) uses_->write();
  }
  void leaves() const {
    if (uses_) uses_->leave();
  }
  bool borrowed() const { return borrowed_; }
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  /// `writer`: name of the operator that wrote, a literal.
  void bump_version(const char* writer) {
    version_.fetch_add(1, std::memory_order_relaxed);
    last_writer_.store(writer, std::memory_order_relaxed);
  }
  /// Takes the place of `before`, which counts as a write by `writer`.
  void succeed(const Storage& before, const char* writer) {
    version_.store(before.version() + 1, std::memory_order_relaxed);
    last_writer_.store(writer, std::memory_order_relaxed);
  }
  /// Who wrote last in place; null: nobody.
  const char* last_writer() const { return last_writer_.load(std::memory_order_relaxed); }

  /// What borrow() holds now, of all storages.
  static size_t borrowed_bytes();

  static constexpr size_t kMaxBytes = size_t{1} << 40;

 private:
  struct SharedBytes;
  Storage(std::byte* data, size_t size, Device device, Ref<StreamUses> uses, std::shared_ptr<void> owner);
  ~Storage() override;
  SharedBytes* shared();
  bool others_have_bytes() const;
  void leave_shared();
  void move_to_new_bytes(bool copy);

  std::byte* data_;
  size_t size_;
  Device device_;
  bool borrowed_ = false;
  std::atomic<bool> exposed_{false};
  std::atomic<uint32_t> version_{0};
  std::atomic<const char*> last_writer_{nullptr};
  std::atomic<SharedBytes*> shared_{nullptr};  // null: never shared
  Ref<StreamUses> uses_;                       // null on the CPU; shared with the bytes
  std::shared_ptr<void> owner_;                // null: the bytes are the allocator's, or shared_'s
};

}  // namespace troupe
