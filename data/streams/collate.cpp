// Rows as one batch.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "data/streams/chunk.h"
#include "ops/index.h"

namespace troupe::datasets::detail {
namespace {

Tensor padded(const Tensor& t, int64_t width, double with) {
  Shape rest = t.shape();
  if (rest.empty()) throw_invalid("[stream] a field of no dimension cannot be padded");
  rest[0] = width - t.size(0);
  return rest[0] == 0 ? t : ops::cat({t, full(rest, with, t.dtype())}, 0);
}

Value joined(const std::string& field, const std::vector<Value>& column) {
  const auto all_are = [&]<class T>(const T*) {
    return std::ranges::all_of(column, [](const Value& v) { return v.get_if<T>() != nullptr; });
  };
  const auto numbers = [&]<class T>(const T*, DType dtype) {
    std::vector<T> out;
    for (const Value& v : column) out.push_back(*v.get_if<T>());
    return tensor(out, dtype);
  };
  if (all_are(static_cast<const int64_t*>(nullptr)))
    return numbers(static_cast<const int64_t*>(nullptr), int64);
  if (all_are(static_cast<const double*>(nullptr)))
    return numbers(static_cast<const double*>(nullptr), float64);
  if (all_are(static_cast<const bool*>(nullptr))) {
    std::vector<int64_t> truths;
    for (const Value& v : column) truths.push_back(*v.get_if<bool>());
    return tensor(truths, int64).to(boolean);
  }
  if (!all_are(static_cast<const Tensor*>(nullptr))) return ValueList(column.begin(), column.end());
  Tensors tensors;
  for (const Value& v : column) {
    tensors.push_back(*v.get_if<Tensor>());
    if (tensors.back().shape() != tensors.front().shape())
      throw_invalid(
          fmt::format("[stream] the field \"{}\" is {} and {} in one batch: name it in "
                      "BatchOptions::pad, pack() it, or make it equal in map()",
                      field, column.front().describe(), v.describe()));
  }
  return ops::stack(tensors, 0);
}

}  // namespace

Sample collate(const std::vector<const Sample*>& all, int64_t begin, int64_t count,
               const BatchOptions& options) {
  Sample out;
  if (count == 0) return out;
  for (const auto& [field, first] : *all[static_cast<size_t>(begin)]) {
    const auto pad = options.pad.find(field);
    int64_t width = 0;
    std::vector<Value> values;
    std::vector<int64_t> lengths;
    for (int64_t r = 0; r < std::ssize(all); ++r) {
      const Sample& row = *all[static_cast<size_t>(r)];
      const auto at = row.find(field);
      if (at == row.end())
        throw_invalid("[stream] one sample of a batch has the field \"" + field + "\", another one has not");
      const auto* t = at->second.get_if<Tensor>();
      if (pad != options.pad.end() && t && t->dim() > 0) width = std::max(width, t->size(0));
      if (r < begin || r >= begin + count) continue;
      values.push_back(at->second);
      if (t && t->dim() > 0) lengths.push_back(t->size(0));
    }
    if (pad != options.pad.end()) {
      width = (width + options.pad_to - 1) / options.pad_to * options.pad_to;
      for (Value& v : values)
        if (auto* t = v.get_if<Tensor>()) *t = padded(*t, width, pad->second);
      out[field + "_length"] = tensor(lengths, int64);
    }
    out[field] = joined(field, values);
  }
  return out;
}

}  // namespace troupe::datasets::detail
