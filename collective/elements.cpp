#include "collective/elements.h"

#include <cstring>

#include "core/tensor/creation.h"

namespace troupe::internal::collective {

namespace {

bool contains(const Range& all, const Range& part) {
  return all.from <= part.from && part.end() <= all.end();
}

}  // namespace

void Elements::add(Range range, Tensor t) { tensors_.emplace_back(range, std::move(t)); }

Tensor Elements::read(Range range) const {
  if (!range.size) return empty({0}, dtype_);
  for (const auto& [has, t] : tensors_)
    if (contains(has, range))
      return t.alias({static_cast<int64_t>(range.size)}, {1},
                     t.storage_offset() + static_cast<int64_t>(range.from - has.from));
  const Tensor all = empty({static_cast<int64_t>(range.size)}, dtype_);
  const size_t item = item_size(dtype_);
  over(range,
       [&](const std::byte* x, size_t n, size_t at) { std::memcpy(all.bytes() + at * item, x, n * item); });
  return all;
}

void Elements::write(Range range, const Tensor& elements) const {
  const size_t item = item_size(dtype_);
  over(range,
       [&](std::byte* x, size_t n, size_t at) { std::memcpy(x, elements.bytes() + at * item, n * item); });
}

void Elements::renew(Range range) {
  for (auto& [has, t] : tensors_)
    if (contains(range, has)) t = empty(t.shape(), dtype_);
}

Tensors Elements::tensors() const {
  Tensors all;
  for (const auto& [range, t] : tensors_) all.push_back(t);
  return all;
}

}  // namespace troupe::internal::collective
