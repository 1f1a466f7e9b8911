// A list of integers as an argument: one number is a list, too.
#pragma once
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/tensor/shape.h"

namespace troupe {

/// Sizes, dimensions or places: `x.sum(1)`, `x.sum({0, 1})`, `x.view({2, -1})`. An empty one (`{}`) names
/// none; the function says what that means.
struct IntList : std::vector<int64_t> {
  using vector::vector;
  IntList() = default;
  IntList(const Shape& sizes) : vector(sizes.begin(), sizes.end()) {}
  IntList(std::vector<int64_t> list) : vector(std::move(list)) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) IntList(T one) : vector(1, static_cast<int64_t>(one)) {}
};

}  // namespace troupe
