// A line as somebody who knows PyTorch writes it, and what PyTorch prints for it.
#pragma once
#include <catch2/catch.hpp>
#include <sstream>
#include <string>

#include "troupe/troupe.h"

namespace troupe::testing {

/// As `std::cout <<` prints it; several results below each other.
template <class T>
std::string printed(const T& x) {
  std::ostringstream out;
  out << std::boolalpha;
  if constexpr (std::is_same_v<T, Tensors>) {
    for (const Tensor& t : x) out << (&t == &x.front() ? "" : "\n") << t;
  } else if constexpr (requires { x.values; }) {
    out << x.values << "\n" << x.indices;
  } else {
    out << x;
  }
  return out.str();
}

}  // namespace troupe::testing

/// LINE(what PyTorch prints, expression)
#define LINE(expected, ...) CHECK(troupe::testing::printed(__VA_ARGS__) == expected)
