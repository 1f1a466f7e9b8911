// The JSON header of a safetensors file, read strictly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/safetensors_entry.h"

namespace troupe::datasets::detail {

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< sorted by begin, which counts from the end of the header
  std::vector<uint32_t> by_name;          ///< their numbers, sorted by name
  std::map<std::string, std::string> metadata;
};

/// Throws `invalid` with a text that starts with `where`, the file's name.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                           const std::string& where);

/// Reads the header of a file of `size` bytes, of which `first` gives the first so many. Entries begin and
/// end then where they do in the file.
SafetensorsHeader read_safetensors_header(size_t size, const std::function<std::string_view(size_t)>& first,
                                          const std::string& where);

}  // namespace troupe::datasets::detail
