// The shortest part of a list that still fails.
#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace troupe::internal {

/// Delta debugging, after Zeller: leaves out halves, then quarters, then single ones, as long as `fails` is
/// true of what remains. Of the result nothing can be left out alone. `all` fails.
template <class T>
std::vector<T> shrink(std::vector<T> all, const std::function<bool(const std::vector<T>&)>& fails) {
  for (size_t size = std::max<size_t>(all.size() / 2, 1); !all.empty();) {
    bool shorter = false;
    for (size_t begin = 0; begin < all.size();) {
      std::vector<T> rest(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(begin));
      rest.insert(rest.end(), all.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, all.size())),
                  all.end());
      if (fails(rest)) {
        all = std::move(rest);
        shorter = true;
      } else {
        begin += size;
      }
    }
    if (size == 1 && !shorter) break;
    if (size > 1) size = std::max<size_t>(std::min(size, all.size()) / 2, 1);
  }
  return all;
}

}  // namespace troupe::internal
