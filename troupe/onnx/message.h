// Protocol buffers, as far as ONNX files need them written.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace troupe::internal::onnx {

/// A message that is being written: its fields, one behind the other.
class Message {
 public:
  Message& number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3), varint(value);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2), varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  Message& real(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    char little[4];
    std::memcpy(little, &value, 4);  // as all processors that Troupe runs on have it
    bytes_.append(little, 4);
    return *this;
  }
  const std::string& bytes() const& { return bytes_; }
  std::string bytes() && { return std::move(bytes_); }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace troupe::internal::onnx
