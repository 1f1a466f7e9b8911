// The places of the files in a tar archive.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "data/formats/unchanged_file.h"

namespace troupe::datasets::detail {

struct TarMember {
  std::string name;
  uint64_t offset = 0, size = 0;  ///< its bytes in the archive
};

/// Calls f for each regular file of an archive that is not packed, in their order. Gives what is wrong where
/// it ended early, with the byte; nothing if it ends as an archive has to. `invalid` for another file.
std::string each_tar_member(const UnchangedFile& archive, const std::function<void(const TarMember&)>& f);

}  // namespace troupe::datasets::detail
