#include "core/base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>

namespace troupe::internal {
namespace {

// The note NT_GNU_BUILD_ID of the program, which is the first that is listed.
int find_build_id(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr);
    const char* const end = at + part.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* const name = at + sizeof note;
      const char* const id = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        for (size_t k = 0; k < note.n_descsz; ++k)
          *static_cast<std::string*>(out) += fmt::format("{:02x}", static_cast<unsigned char>(id[k]));
        return 1;
      }
      at = id + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

}  // namespace

std::string build_id() {
  static const std::string id = [] {
    std::string found;
    dl_iterate_phdr(find_build_id, &found);
    struct stat file {};
    if (found.empty() && stat("/proc/self/exe", &file) == 0) found = fmt::format("{} bytes", file.st_size);
    return found;
  }();
  return id;
}

}  // namespace troupe::internal
