#include "data/formats/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"

namespace troupe::datasets {
namespace {

std::array<uint32_t, 256> table_of_crc32c() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}

// TFRecord masks them: a checksum of bytes that have checksums themselves tells little.
uint32_t masked_crc(const void* data, size_t count) {
  return std::rotr(crc32c(data, count), 15) + 0xa282ead8u;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

uint32_t crc32c(const void* data, size_t count) {
  static const auto table = table_of_crc32c();
  uint32_t c = ~0u;
  for (const auto* p = static_cast<const unsigned char*>(data); count--; ++p)
    c = table[(c ^ *p) & 255] ^ (c >> 8);
  return ~c;
}

void ProtoMessage::varint(uint64_t n) {
  for (; n > 127; n >>= 7) text_ += static_cast<char>(n | 128);
  text_ += static_cast<char>(n);
}
void ProtoMessage::key(int field, int type) {
  varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}
ProtoMessage& ProtoMessage::number(int field, uint64_t n) {
  key(field, 0), varint(n);
  return *this;
}
ProtoMessage& ProtoMessage::real(int field, double x) {
  key(field, 1), text_.append(reinterpret_cast<const char*>(&x), sizeof x);
  return *this;
}
ProtoMessage& ProtoMessage::short_real(int field, float x) {
  key(field, 5), text_.append(reinterpret_cast<const char*>(&x), sizeof x);
  return *this;
}
ProtoMessage& ProtoMessage::bytes(int field, std::string_view b) {
  key(field, 2), varint(b.size()), text_ += b;
  return *this;
}
ProtoMessage& ProtoMessage::reals(int field, const std::vector<double>& all) {
  return bytes(field, {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(double)});
}

EventFile::EventFile(const std::string& folder) : file_(nullptr, std::fclose) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  static std::atomic<int> files{0};
  char host[65] = "";
  gethostname(host, sizeof host - 1);
  path_ = folder + "/events.out.tfevents." + std::to_string(static_cast<int64_t>(seconds_since_1970())) +
          "." + host + "." + std::to_string(getpid()) + "." + std::to_string(files++);
  file_.reset(std::fopen(path_.c_str(), "abe"));
  if (!file_)
    throw_invalid("[summary] " + path_ + " cannot be written: " + std::strerror(errno) +
                  "; expected a folder for event files, which is made if it is not there");
  if (!record(ProtoMessage().real(1, seconds_since_1970()).bytes(3, "brain.Event:2").text()))
    throw_error(ErrorKind::failed, "[summary] " + path_ + " cannot be written: " + std::strerror(errno));
}

bool EventFile::add(const ProtoMessage& value, int64_t step) {
  const ProtoMessage summary = ProtoMessage().bytes(1, value.text());
  return record(ProtoMessage()
                    .real(1, seconds_since_1970())
                    .number(2, static_cast<uint64_t>(step))
                    .bytes(5, summary.text())
                    .text());
}

bool EventFile::record(const std::string& payload) {
  const uint64_t size = payload.size();
  const uint32_t head = masked_crc(&size, sizeof size), body = masked_crc(payload.data(), payload.size());
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += payload;
  bytes.append(reinterpret_cast<const char*>(&body), sizeof body);
  return std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size() &&
         std::fflush(file_.get()) == 0;
}

}  // namespace troupe::datasets
