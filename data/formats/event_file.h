// TensorBoard's event files.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace troupe::datasets {

/// A protocol buffer message that is put together field by field.
class ProtoMessage {
 public:
  ProtoMessage& number(int field, uint64_t n);
  ProtoMessage& real(int field, double x);
  ProtoMessage& short_real(int field, float x);
  ProtoMessage& bytes(int field, std::string_view b);
  /// Values of one field, one behind the other.
  ProtoMessage& reals(int field, const std::vector<double>& all);
  const std::string& text() const& { return text_; }
  std::string text() && { return std::move(text_); }

 private:
  void key(int field, int type);
  void varint(uint64_t n);
  std::string text_;
};

/// One more file of a folder, "events.out.tfevents.<time>.<host>.<pid>.<number>". Each event is whole in the
/// file when add() returns, so that a process that dies loses none, and TensorBoard reads along. Not
/// thread-safe.
class EventFile {
 public:
  /// Makes the folder. `invalid` where it cannot be made, or no file in it.
  explicit EventFile(const std::string& folder);
  const std::string& path() const& { return path_; }
  std::string path() && { return std::move(path_); }
  /// A value (Summary.Value) of a step. False if the disk refuses.
  bool add(const ProtoMessage& value, int64_t step);

 private:
  bool record(const std::string& payload);
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// CRC-32C, which the records have.
uint32_t crc32c(const void* data, size_t count);

}  // namespace troupe::datasets
