// The JSON header of a safetensors file, read strictly.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/safetensors.h"

namespace troupe::data::detail {

/// Bits per element of a dtype of the format; 0 for a name that it does not have.
unsigned safetensors_bits(std::string_view dtype);

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< sorted by begin, which counts from the end of the header
  std::map<std::string, std::string> metadata;
};

/// Throws `invalid` with a text that starts with `where`, the file's name.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                           const std::string& where);

}  // namespace troupe::data::detail
