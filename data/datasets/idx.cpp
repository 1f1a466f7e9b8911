// Reads IDX: a header check, then exactly the declared bytes.
#include "data/datasets/idx.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "data/formats/byte_stream.h"
#include "data/formats/file.h"

namespace troupe::datasets {
namespace {

constexpr uint64_t kMaxValues = uint64_t{4} << 30;
constexpr size_t kFirstBlock = size_t{1}
                               << 20;  // what a gzipped file may make us allocate before it delivers

std::string hex(unsigned byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", byte);
  return text;
}

[[noreturn]] void fail(const std::string& path, const std::string& what,
                       ErrorKind kind = ErrorKind::invalid) {
  throw_error(kind, "[idx] " + path + ": " + what);
}

void check_type(const std::string& path, unsigned type) {
  const char* known = nullptr;
  switch (type) {
    case 0x08:
      return;
    case 0x09:
      known = "int8";
      break;
    case 0x0B:
      known = "int16";
      break;
    case 0x0C:
      known = "int32";
      break;
    case 0x0D:
      known = "float32";
      break;
    case 0x0E:
      known = "float64";
      break;
  }
  if (known)
    fail(path, "elements of type " + hex(type) + " (" + known + ") at byte 2, only 0x08 (uint8) is read",
         ErrorKind::unimplemented);
  fail(path, "element type " + hex(type) + " at byte 2, expected 0x08 (uint8)");
}

Shape read_header(const std::string& path, ByteStream& source) {
  std::array<uint8_t, 4 + 4 * kMaxDims> bytes;
  auto need = [&](uint8_t* at, size_t count, const std::string& of) {
    const uint64_t from = source.offset();
    if (source.read(at, count) == count) return;
    if (source.offset() == 0) fail(path, "is empty, expected an IDX file");
    fail(path, "ends at byte " + std::to_string(source.offset()) + " in the header, expected " + of +
                   " up to byte " + std::to_string(from + count));
  };
  need(bytes.data(), 4, "the magic number");
  for (int i = 0; i < 2; ++i)
    if (bytes[i] != 0)
      fail(path, "byte " + std::to_string(i) + " is " + hex(bytes[i]) + ", expected 0x00: not an IDX file" +
                     instead({reinterpret_cast<const char*>(bytes.data()), 4}));
  check_type(path, bytes[2]);
  const int rank = bytes[3];
  if (rank < 1 || rank > kMaxDims)
    fail(path, std::to_string(rank) + " dimensions at byte 3, expected 1 to " + std::to_string(kMaxDims));
  need(bytes.data() + 4, 4 * static_cast<size_t>(rank),
       "the sizes of " + std::to_string(rank) + " dimensions");
  Shape shape;
  uint64_t product = 1;
  for (int d = 0; d < rank; ++d) {
    const uint8_t* p = bytes.data() + 4 + 4 * d;
    const uint64_t size = uint64_t{p[0]} << 24 | p[1] << 16 | p[2] << 8 | p[3];
    shape.push_back(static_cast<int64_t>(size));
    product *= std::max<uint64_t>(size, 1);  // both below 2^33: cannot wrap
    if (product > kMaxValues)
      fail(path,
           "declares more than 4 GiB: sizes up to byte " + std::to_string(8 + 4 * d) + " are " + shape.str());
  }
  return shape;
}

}  // namespace

Idx read_idx(const std::string& path) {
  const auto stream = ByteStream::open(path, "idx", "an IDX file");
  ByteStream& source = *stream;
  Idx idx;
  idx.shape = read_header(path, source);
  const uint64_t start = source.offset(), count = static_cast<uint64_t>(idx.shape.numel()),
                 total = start + count;
  const std::string declared = " bytes declared by sizes " + idx.shape.str();
  uint64_t got = 0;
  while (got < count) {  // grows with what really comes, so that a lying header costs nothing
    const uint64_t room = std::min(count, std::max<uint64_t>(kFirstBlock, 2 * got));
    idx.values.resize(room);
    const size_t n = source.read(idx.values.data() + got, room - got);
    got += n;
    if (got < room)
      fail(path, "ends at byte " + std::to_string(start + got) + ", expected the " + std::to_string(total) +
                     declared);
  }
  uint8_t extra;
  if (source.read(&extra, 1) != 0)
    fail(path, "goes on at byte " + std::to_string(total) + ", expected the end after the " +
                   std::to_string(total) + declared);
  return idx;
}

Tensor images(const std::string& path) {
  const Idx idx = read_idx(path);
  if (idx.shape.rank() != 3)
    fail(path, "has sizes " + idx.shape.str() + ", expected 3 of them: images, rows, columns");
  const Tensor out = empty({idx.shape[0], idx.shape[1] * idx.shape[2]});
  float* to = out.data<float>();
  for (uint8_t v : idx.values) *to++ = static_cast<float>(v) / 255.0f;
  return out;
}

Tensor labels(const std::string& path) {
  const Idx idx = read_idx(path);
  if (idx.shape.rank() != 1) fail(path, "has sizes " + idx.shape.str() + ", expected 1 of them: labels");
  const Tensor out = empty({idx.shape[0]}, int64);
  std::copy(idx.values.begin(), idx.values.end(), out.data<int64_t>());
  return out;
}

}  // namespace troupe::datasets
