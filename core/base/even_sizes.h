// How many things each of several has, if they are divided as evenly as they go: the first have one more.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace troupe::internal {

inline int64_t even_size(int64_t count, int64_t part, int64_t parts) {
  return count / parts + (part < count % parts);
}
/// Where that part begins.
inline int64_t even_begin(int64_t count, int64_t part, int64_t parts) {
  return part * (count / parts) + std::min(part, count % parts);
}
/// Of all parts.
inline std::vector<int64_t> even_sizes(int64_t count, size_t parts) {
  std::vector<int64_t> sizes;
  for (size_t part = 0; part < parts; ++part)
    sizes.push_back(even_size(count, static_cast<int64_t>(part), static_cast<int64_t>(parts)));
  return sizes;
}

}  // namespace troupe::internal
