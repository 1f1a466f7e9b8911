#include "data/checkpoint/assembly.h"

#include <cstring>

#include "core/tensor/creation.h"

namespace troupe::datasets::detail {

char* at_element(const Tensor& t, int64_t i) {
  return reinterpret_cast<char*>(t.bytes()) + static_cast<size_t>(i) * item_size(t.dtype());
}

Assembly::Assembly(DType dtype, const Shape& shape) : whole_(empty(shape, dtype)), there_(whole_.numel()) {}

bool Assembly::add(const Tensor& part, int64_t to, int64_t from, int64_t count) {
  const size_t item = item_size(whole_.dtype());
  bool same = true;
  there_.add(to, count, [&](int64_t first, int64_t n, bool known) {
    char* const into = at_element(whole_, first);
    const char* const bytes = at_element(part, from + first - to);
    const size_t size = static_cast<size_t>(n) * item;
    if (known)
      same = same && std::memcmp(into, bytes, size) == 0;
    else
      std::memcpy(into, bytes, size);
  });
  return same;
}

}  // namespace troupe::datasets::detail
