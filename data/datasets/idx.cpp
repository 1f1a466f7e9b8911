// Reads IDX: a byte source (plain or inflating), a header check, then exactly the declared bytes.
#include "data/datasets/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "data/formats/file.h"

namespace troupe::datasets {
namespace {

constexpr uint64_t kMaxValues = uint64_t{4} << 30;
constexpr size_t kFirstBlock = size_t{1}
                               << 20;  // what a gzipped file may make us allocate before it delivers

constexpr uint8_t kGzip[] = {0x1f, 0x8b};  // of gzip

std::string hex(unsigned byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", byte);
  return text;
}

[[noreturn]] void fail(const std::string& path, const std::string& what,
                       ErrorKind kind = ErrorKind::invalid) {
  throw_error(kind, "[idx] " + path + ": " + what);
}

// The bytes of a file after inflation, if it is gzipped.
class Source {
 public:
  explicit Source(const std::string& path) : path_(path), file_(open_regular(path, "idx", "an IDX file")) {
    refill();
    if (size_ == 0) fail(path_, "is empty, expected an IDX file");
    gzipped_ = size_ >= 2 && in_[0] == kGzip[0] && in_[1] == kGzip[1];
    if (!gzipped_) return;
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
    stream_.next_in = in_.data();
    stream_.avail_in = static_cast<unsigned>(size_);
  }
  ~Source() {
    if (gzipped_) inflateEnd(&stream_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  bool gzipped() const { return gzipped_; }
  /// Bytes delivered so far.
  uint64_t offset() const { return offset_; }

  /// Up to `count` bytes; fewer only at the end of the data, which for gzip has then passed its checksum.
  size_t read(uint8_t* out, size_t count) {
    const size_t got = gzipped_ ? inflate_some(out, count) : copy_some(out, count);
    offset_ += got;
    return got;
  }

 private:
  void refill() {
    consumed_ += size_;
    size_ = std::fread(in_.data(), 1, in_.size(), file_.get());
    at_ = 0;
    if (std::ferror(file_.get())) fail(path_, std::string("cannot be read: ") + std::strerror(errno));
  }

  size_t copy_some(uint8_t* out, size_t count) {
    size_t got = 0;
    while (got < count) {
      if (at_ == size_) refill();
      if (size_ == 0) break;
      const size_t n = std::min(count - got, size_ - at_);
      std::memcpy(out + got, in_.data() + at_, n);
      at_ += n, got += n;
    }
    return got;
  }

  size_t inflate_some(uint8_t* out, size_t count) {
    size_t got = 0;
    while (got < count && !ended_) {
      if (stream_.avail_in == 0) {
        refill();
        if (size_ == 0)
          fail(path_, "gzip data cut short at byte " + std::to_string(consumed_) + ", after " +
                          std::to_string(offset_ + got) + " inflated bytes");
        stream_.next_in = in_.data();
        stream_.avail_in = static_cast<unsigned>(size_);
      }
      const auto step = static_cast<unsigned>(std::min<size_t>(count - got, size_t{1} << 30));
      stream_.next_out = out + got;
      stream_.avail_out = step;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      got += step - stream_.avail_out;
      if (status == Z_STREAM_END) {
        ended_ = !next_member();
      } else if (status == Z_MEM_ERROR) {
        throw std::bad_alloc();
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        fail(path_, "broken gzip data near byte " + std::to_string(compressed_offset()) + ", after " +
                        std::to_string(offset_ + got) + " inflated bytes" +
                        (stream_.msg ? std::string(": ") + stream_.msg : ""));
      }
    }
    return got;
  }

  // Whether gzipped data follow gzipped data: a file may hold any number of them, one after the other.
  bool next_member() {
    const uint64_t end = compressed_offset();
    uint8_t head[2];
    size_t got = 0;
    for (; got < 2; ++got) {
      if (stream_.avail_in == 0) {
        refill();
        if (size_ == 0) break;
        stream_.next_in = in_.data();
        stream_.avail_in = static_cast<unsigned>(size_);
      }
      head[got] = *stream_.next_in++, --stream_.avail_in;
    }
    if (got == 0) return false;
    if (got < 2 || head[0] != kGzip[0] || head[1] != kGzip[1])
      fail(path_, "bytes after the end of the gzip data, at byte " + std::to_string(end) +
                      ", expected none or more gzip data");
    if (inflateReset(&stream_) != Z_OK) throw std::bad_alloc();
    // The two bytes may come from different blocks of the file, so they are given again from here.
    Bytef* const in = stream_.next_in;
    const uInt left = stream_.avail_in;
    stream_.next_in = head, stream_.avail_in = 2, stream_.avail_out = 0;
    inflate(&stream_, Z_NO_FLUSH);
    stream_.next_in = in, stream_.avail_in = left;
    return true;
  }

  uint64_t compressed_offset() const { return consumed_ + size_ - stream_.avail_in; }

  const std::string& path_;
  OpenFile file_;
  std::array<uint8_t, 1 << 16> in_;
  size_t size_ = 0, at_ = 0;
  uint64_t consumed_ = 0;  // file bytes before in_
  uint64_t offset_ = 0;
  z_stream stream_{};
  bool gzipped_ = false, ended_ = false;
};

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

Shape read_header(const std::string& path, Source& source) {
  std::array<uint8_t, 4 + 4 * kMaxDims> bytes;
  auto need = [&](uint8_t* at, size_t count, const std::string& of) {
    const uint64_t from = source.offset();
    if (source.read(at, count) != count)
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
  Source source(path);
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
