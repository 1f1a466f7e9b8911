// Both ends of what processes of a host lend each other, without a connection.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/memory/arena.h"
#include "core/memory/cpu_allocator.h"
#include "core/memory/lent.h"
#include "net/socket/shared/exported_blocks.h"
#include "net/socket/shared/imported_arena.h"
#include "net/socket/shared/shared_memory.h"

namespace troupe::internal::net::test {

/// The process's arena, and both sides of a connection that lends from it: the receiver's is another mapping.
struct Exports {
  explicit Exports(size_t most = size_t{1} << 30) {
    std::string why;
    if (!open_cpu_arena(size_t{64} << 30, why)) throw_error(ErrorKind::failed, "[test] no arena: " + why);
    exporter = ExportedBlocks::create(most, why);
    if (!exporter) throw_error(ErrorKind::failed, "[test] nothing is lent: " + why);
    const Descriptor arena(::dup(Arena::of_process()->descriptor()));
    importer =
        ImportedArena::open(arena, exporter->table(), std::move(exporter->lease()), size_t{1} << 40, why);
    if (!importer) throw_error(ErrorKind::failed, "[test] nothing is adopted: " + why);
  }
  ~Exports() { exporter->retire(); }
  /// Sent and delivered.
  Ref<Storage> adopted(const Buffer& b) { return importer->adopt(exporter->lend(b).value(), b.size); }
  /// The word of a slot for all of another storage.
  static uint64_t place(uint64_t slot_of, const Ref<Storage>& s) {
    return ExportPlace{ExportPlace::of(slot_of).slot, Arena::of_process()->offset_of(s->data())}.word();
  }
  /// The words of the table, and what puts them there again: for a receiver that dies without a word.
  std::vector<uint32_t> words() const {
    std::vector<uint32_t> all;
    const auto table = ExportTable::map(exporter->table());
    for (size_t slot = 0; slot < ExportTable::kSlots; ++slot) all.push_back(table->at(slot).load());
    return all;
  }
  void put_back(const std::vector<uint32_t>& all) const {
    const auto table = ExportTable::map(exporter->table());
    for (size_t slot = 0; slot < all.size(); ++slot) table->at(slot).store(all[slot]);
  }

  std::shared_ptr<ExportedBlocks> exporter;
  std::unique_ptr<ImportedArena> importer;
};

inline Ref<Storage> filled(size_t bytes, int with) {
  auto storage = Storage::allocate(bytes);
  std::memset(storage->data(), with, bytes);
  return storage;
}
inline bool all_are(const Storage& s, int value) {
  return std::all_of(s.data(), s.data() + s.size(),
                     [&](std::byte x) { return x == static_cast<std::byte>(value); });
}

/// What the kernel says of the mapping around `address`: "r--s", and the flags of VmFlags. Empty: there is
// none.
struct Mapping {
  std::string access, flags;
};
inline Mapping mapping_of(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(address);
  Mapping found;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) == 3) {
      if (begin <= at && at < end) found.access = access;
    } else if (!found.access.empty() && line.starts_with("VmFlags:")) {
      found.flags = line.substr(8) + " ";
      break;
    }
  }
  return found;
}

}  // namespace troupe::internal::net::test
