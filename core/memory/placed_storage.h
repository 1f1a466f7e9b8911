// Results that are made where they will be needed.
#pragma once
#include "core/memory/storage.h"

namespace troupe {

/// Memory that the results of this process may be made in because another one will read them there.
class StoragePlace {
 public:
  virtual ~StoragePlace() = default;
  /// Uninitialized bytes, aligned as Storage says. Null: no room. Thread-safe.
  virtual Ref<Storage> make(size_t bytes) = 0;
};

/// While one is alive, the first storage of exactly `bytes` that its thread allocates on the CPU is made in
/// `place`. The innermost one counts.
class PlacedStorage {
 public:
  /// `place` may be null: nothing is placed. `result_of`: what runs meanwhile, for made_by().
  PlacedStorage(StoragePlace* place, size_t bytes, const void* result_of)
      : place_(bytes ? place : nullptr), bytes_(bytes), result_of_(result_of), before_(here) {
    here = this;
  }
  ~PlacedStorage() { here = before_; }
  PlacedStorage(const PlacedStorage&) = delete;

  /// made() of what runs on this thread, if that is `result_of`; else null.
  static const std::byte* made_by(const void* result_of) {
    return here && here->result_of_ == result_of ? here->made_ : nullptr;
  }
  /// For Storage::allocate(): null if it is to come from the allocator.
  static Ref<Storage> make_here(size_t bytes) {
    if (!here || !here->place_ || here->bytes_ != bytes) return nullptr;
    Ref<Storage> made = here->place_->make(bytes);
    here->made_ = made ? made->data() : nullptr;
    here->place_ = nullptr;
    return made;
  }
  /// Where the storage that was placed has its bytes; null: none was.
  const std::byte* made() const { return made_; }

 private:
  StoragePlace* place_;
  const size_t bytes_;
  const void* const result_of_;
  const std::byte* made_ = nullptr;
  PlacedStorage* const before_;
  static inline constinit thread_local PlacedStorage* here = nullptr;
};

}  // namespace troupe
