#include "collective/elements.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/memory/arena.h"
#include "core/tensor/creation.h"

namespace troupe::internal::collective {

void Elements::add(Range range, Tensor t) { places_.push_back({range, t, t}); }

void Elements::add_given(Range range, Tensor t) {
  places_.push_back({range, std::move(t), {}});
  all_in_place_ = false;
}

Tensor Elements::new_like(const Place& p) const { return empty(p.given.shape(), dtype_); }

// The tensor with what those elements are now.
const Tensor& Elements::current(const Place& p, const Range& part) const {
  if (!p.result.defined()) return p.given;
  if (p.result.is_same(p.given)) return p.result;
  auto at = written_.upper_bound(part.from);
  if (at != written_.begin() && std::prev(at)->second >= part.end()) return p.result;
  if ((at != written_.end() && at->first < part.end()) ||
      (at != written_.begin() && std::prev(at)->second > part.from))
    throw std::logic_error("a schedule reads a range of which some is written");
  return p.given;
}

void Elements::note_written(const Range& range) {
  if (all_in_place_ || !range.size) return;
  size_t from = range.from, end = range.end();
  auto at = written_.upper_bound(from);
  if (at != written_.begin() && std::prev(at)->second >= from) --at;
  for (; at != written_.end() && at->first <= end; at = written_.erase(at))
    from = std::min(from, at->first), end = std::max(end, at->second);
  written_.emplace(from, end);
}

Tensor Elements::read(Range range) const {
  if (!range.size) return empty({0}, dtype_);
  for (const Place& p : places_)
    if (common(p.range, range) == range) {
      const Tensor& t = current(p, range);
      return t.alias({static_cast<int64_t>(range.size)}, {1},
                     t.storage_offset() + static_cast<int64_t>(range.from - p.range.from));
    }
  Tensor all = empty({static_cast<int64_t>(range.size)}, dtype_);
  const size_t item = item_size(dtype_);
  for (const Place& p : places_)
    if (const Range part = common(p.range, range); part.size)
      std::memcpy(all.bytes() + (part.from - range.from) * item, first_byte(current(p, part), p, part),
                  part.size * item);
  return all;
}

Tensors Elements::parts(Range range) const {
  Tensors all;
  Range small;  // neighbours
  const auto add_small = [&] {
    if (small.size) all.push_back(read(small));
    small = {};
  };
  for (const Place& p : places_) {
    const Range part = common(p.range, range);
    if (part.size * item_size(dtype_) >=
        Arena::kSmallest) {  // from there on it is not copied when it is sent
      add_small();
      all.push_back(read(part));
    } else if (part.size) {
      if (small.end() != part.from) add_small();
      small = {small.size ? small.from : part.from, small.size + part.size};
    }
  }
  add_small();
  if (all.empty()) all.push_back(read(range));
  return all;
}

void Elements::write(Range range, const Tensors& elements) {
  const size_t item = item_size(dtype_);
  for (const Tensor& t : elements) {
    const Range part{range.from, static_cast<size_t>(t.numel())};
    rewrite(part, [&](const std::byte*, std::byte* to, size_t n, size_t at) {
      std::memcpy(to, t.bytes() + at * item, n * item);
    });
    range = {part.end(), range.size - part.size};
  }
}

void Elements::renew() {
  for (Place& p : places_) {
    if (p.result.defined()) p.given = std::move(p.result);
    p.result = {};
  }
  all_in_place_ = false;
  written_.clear();
}

Tensors Elements::tensors() const {
  Tensors all;
  for (const Place& p : places_) all.push_back(p.result.defined() ? p.result : p.given);
  return all;
}

}  // namespace troupe::internal::collective
