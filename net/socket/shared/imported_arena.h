// The receiver's side of net/socket/shared/exported_blocks.h: another process's arena, mapped for reading.
#pragma once
#include <memory>
#include <string>

#include "core/memory/storage.h"
#include "net/socket/loop/sockets.h"

namespace troupe::internal::net {

/// Believes nothing that the sender writes: a place is checked, and what is used as an address or a size is
/// to be copied first, since the sender could change it at any time. Thread-safe.
class ImportedArena {
 public:
  /// Null, with the reason in `why`, if the descriptors are not what they should be, or the arena has more
  /// than `most` bytes.
  static std::unique_ptr<ImportedArena> open(const Descriptor& arena, const Descriptor& table,
                                             Descriptor lease, size_t most, std::string& why);
  ~ImportedArena();  ///< as detach()

  /// The bytes at a place, which are let go of with their storage. Throws `invalid` if it is none.
  Ref<Storage> adopt(uint64_t word, size_t size) const;
  /// The connection has ended, with or without the owner. What tensors here still have gets pages of this
  /// process at the same addresses, while others may be reading, and the arena is unmapped: else one tensor
  /// would keep all memory of an owner that is dead, and its block of one that lives. Without memory the
  /// mapping stays, and collect_lent() (core/memory/lent.h) tries again.
  void detach();
  bool detached() const;

 private:
  class Mapping;
  explicit ImportedArena(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
  const std::shared_ptr<Mapping> mapping_;  // as long as any storage in it
};

}  // namespace troupe::internal::net
