// Where the bytes of a tensor are.
#pragma once
#include <cstdint>
#include <string>

namespace troupe {

struct Device {
  enum class Kind : uint8_t { cpu = 0, cuda = 1 };
  Kind kind = Kind::cpu;
  int8_t index = 0;

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return kind == Kind::cpu; }
  std::string str() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }
};

inline constexpr Device cpu{};

}  // namespace troupe
