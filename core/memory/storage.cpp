#include "core/memory/storage.h"

#include <string>

#include "core/base/error.h"
#include "core/memory/arena.h"
#include "core/memory/cpu_allocator.h"
#include "core/memory/lent.h"
#include "core/memory/small_object_pool.h"
#include "core/memory/streaming_copy.h"

namespace troupe {
namespace {

std::atomic<size_t> borrowed_now{0};

std::byte* allocate_bytes(size_t bytes, Device device) {
  return static_cast<std::byte*>(device.is_cpu() ? cpu_allocate(bytes)
                                                 : backend_of(device).allocate(bytes, device));
}

Ref<StreamUses> uses_on(Device device) {
  if (device.is_cpu()) return nullptr;
  return make_ref<StreamUses>(device, backend_of(device).current_stream(device));
}

void free_bytes(std::byte* data, size_t bytes, Device device, const Ref<StreamUses>& uses) {
  if (!uses) return cpu_free(data, bytes);
  StreamId stream = 0;
  try {
    stream = uses->free();
  } catch (const std::exception&) {  // the device has failed, and its memory with it
  }
  backend_of(device).free(data, bytes, device, stream);
}

Ref<Storage> adopt_new(Storage* made) {
  made->retain_new();
  return Ref<Storage>::adopt(made);
}

}  // namespace

// Bytes that several storages have, or had. The last one frees them.
struct Storage::SharedBytes {
  std::byte* data;
  size_t size;  // as allocated
  Device device;
  Ref<StreamUses> uses;
  std::shared_ptr<void> owner;
  bool borrowed;  // from another process
  std::atomic<uint32_t> holders;

  static void* operator new(size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* memory, size_t bytes) { pool_free(memory, bytes); }
  // Release: what was read is over. Acquire: the last one frees after that.
  void let_go() {
    // Alone, it stays so: only a holder makes another one.
    if (holders.load(std::memory_order_acquire) != 1 && holders.fetch_sub(1, std::memory_order_acq_rel) != 1)
      return;
    if (!owner) free_bytes(data, size, device, uses);
    if (borrowed) borrowed_now.fetch_sub(size, std::memory_order_relaxed);
    delete this;
  }
};

Storage::Storage(std::byte* data, size_t size, Device device, Ref<StreamUses> uses,
                 std::shared_ptr<void> owner)
    : data_(data), size_(size), device_(device), uses_(std::move(uses)), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (SharedBytes* shared = shared_.load(std::memory_order_acquire)) {
    shared->let_go();
    return;
  }
  if (owner_.use_count() == 0) free_bytes(data_, size_, device_, uses_);
}

bool Storage::shares_bytes() const {
  const SharedBytes* shared = shared_.load(std::memory_order_acquire);
  return shared && (shared->borrowed || shared->holders.load(std::memory_order_acquire) != 1);
}

size_t Storage::block_bytes() const {
  const SharedBytes* shared = shared_.load(std::memory_order_acquire);
  return shared ? shared->size : size_;
}

// With this storage as a holder. Several threads may come here with the same storage: one record wins.
Storage::SharedBytes* Storage::shared() {
  SharedBytes* there = shared_.load(std::memory_order_acquire);
  if (there) return there;
  auto* made = new SharedBytes{data_, size_, device_, uses_, owner_, borrowed_, 1};
  if (shared_.compare_exchange_strong(there, made, std::memory_order_acq_rel)) return made;
  delete made;
  return there;
}

Ref<Storage> Storage::share(size_t from, size_t bytes) {
  SharedBytes* bytes_of_both = shared();
  Ref<Storage> other = adopt_new(new Storage(data_ + from, bytes, device_, uses_, nullptr));
  bytes_of_both->holders.fetch_add(1, std::memory_order_relaxed);
  other->shared_.store(bytes_of_both, std::memory_order_relaxed);
  other->borrowed_ = borrowed_;
  return other;
}

// Some of those who share may be other processes, which let go without a word.
bool Storage::others_have_bytes() const {
  if (!shares_bytes()) return false;
  if (!Arena::of_process() || !Arena::has(data_)) return true;
  collect_lent();
  return shares_bytes();
}

void Storage::leave_shared() {
  if (others_have_bytes()) move_to_new_bytes(true);
}

Ref<Storage> Storage::own_new_bytes() {
  if (!device_.is_cpu()) own_bytes();
  if (!others_have_bytes()) return {};
  Ref<Storage> before = share(0, size_);
  move_to_new_bytes(false);
  return before;
}

void Storage::move_to_new_bytes(bool copy) {
  SharedBytes* before = shared_.load(std::memory_order_relaxed);
  Ref<StreamUses> uses = uses_on(device_);
  std::byte* own = allocate_bytes(size_, device_);
  used_here();
  if (copy && device_.is_cpu())
    copy_large(own, data_, size_);
  else if (copy)
    backend_of(device_).copy(own, data_, size_, CopyWay::within, device_);
  uses_ = std::move(uses);
  data_ = own;
  owner_.reset();
  borrowed_ = false;
  shared_.store(nullptr, std::memory_order_release);
  before->let_go();
}

Ref<Storage> Storage::allocate(size_t bytes, Device device) {
  if (bytes > kMaxBytes)
    throw_invalid("[storage] " + std::to_string(bytes) + " bytes asked for; the limit is " +
                  std::to_string(kMaxBytes));
  Ref<StreamUses> uses = uses_on(device);
  return adopt_new(new Storage(allocate_bytes(bytes, device), bytes, device, std::move(uses), nullptr));
}

Ref<Storage> Storage::wrap(void* data, size_t bytes, std::shared_ptr<void> owner) {
  if (owner.use_count() == 0) throw_invalid("[storage] memory to wrap needs an owner");
  return Ref<Storage>(new Storage(static_cast<std::byte*>(data), bytes, cpu, nullptr, std::move(owner)));
}

Ref<Storage> Storage::borrow(void* data, size_t bytes, std::shared_ptr<void> owner) {
  Ref<Storage> storage = wrap(data, bytes, std::move(owner));
  storage->borrowed_ = true;
  storage->shared();
  borrowed_now.fetch_add(bytes, std::memory_order_relaxed);
  return storage;
}

size_t Storage::borrowed_bytes() { return borrowed_now.load(std::memory_order_relaxed); }

}  // namespace troupe
