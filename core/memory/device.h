// Where the bytes of a tensor are.
#pragma once
#include <cstdint>
#include <string>

namespace troupe {

/// One device of a kind: {cpu}, the first GPU. The kinds other than the CPU are those whose folder the
/// program was built with (core/memory/backend.h).
struct Device {
  enum class Kind : uint8_t { cpu = 0 };
  Kind kind = Kind::cpu;
  int8_t index = 0;

  constexpr Device() = default;
  constexpr Device(Kind kind, int8_t index = 0) : kind(kind), index(index) {}
  /// "cpu", "cuda" (the first one), "cuda:1". `invalid` for any other text and `unimplemented` for a kind
  /// that the program was not built with, naming those that it has.
  Device(const char* name) : Device(std::string(name)) {}
  Device(const std::string& name);

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return kind == Kind::cpu; }
  /// As the constructor takes it: "cpu", "cuda:1".
  std::string str() const;
};

inline constexpr Device cpu{};

}  // namespace troupe
