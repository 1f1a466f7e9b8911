#include "data/formats/byte_stream.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "core/base/error.h"
#include "data/formats/file.h"
#include "data/formats/zstd_stream.h"

namespace troupe::datasets {
namespace {

constexpr uint8_t kGzip[] = {0x1f, 0x8b};
constexpr std::string_view kZstd("\x28\xb5\x2f\xfd", 4);

struct Named {
  std::string path;
  const char* tag;
  [[noreturn]] void fail(const std::string& what) const {
    throw_invalid(fmt::format("[{}] {}: {}", tag, path, what));
  }
};

// A block of the file at a time.
struct Blocks {
  Named name;
  OpenFile file;
  std::array<uint8_t, 1 << 16> in;
  size_t size = 0;
  uint64_t before = 0;  // bytes of the file in blocks that are gone

  void refill() {
    before += size;
    size = std::fread(in.data(), 1, in.size(), file.get());
    if (std::ferror(file.get())) name.fail(std::string("cannot be read: ") + std::strerror(errno));
  }
};

class Plain final : public ByteStream {
 public:
  explicit Plain(std::unique_ptr<Blocks> blocks) : blocks_(std::move(blocks)) {}
  bool packed() const override { return false; }

 private:
  size_t some(std::byte* out, size_t count) override {
    size_t got = 0;
    while (got < count) {
      if (at_ == blocks_->size) blocks_->refill(), at_ = 0;
      if (blocks_->size == 0) break;
      const size_t n = std::min(count - got, blocks_->size - at_);
      std::memcpy(out + got, blocks_->in.data() + at_, n);
      at_ += n, got += n;
    }
    return got;
  }
  std::unique_ptr<Blocks> blocks_;
  size_t at_ = 0;
};

class Gzip final : public ByteStream {
 public:
  explicit Gzip(std::unique_ptr<Blocks> blocks) : blocks_(std::move(blocks)) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
    begin_block();
  }
  ~Gzip() override { inflateEnd(&stream_); }
  bool packed() const override { return true; }

 private:
  void begin_block() {
    stream_.next_in = blocks_->in.data();
    stream_.avail_in = static_cast<unsigned>(blocks_->size);
  }
  uint64_t packed_offset() const { return blocks_->before + blocks_->size - stream_.avail_in; }

  size_t some(std::byte* out, size_t count) override {
    size_t got = 0;
    while (got < count && !ended_) {
      if (stream_.avail_in == 0) {
        blocks_->refill();
        if (blocks_->size == 0)
          blocks_->name.fail(fmt::format("gzip data cut short at byte {}, after {} inflated bytes",
                                         blocks_->before, offset() + got));
        begin_block();
      }
      const auto step = static_cast<unsigned>(std::min<size_t>(count - got, size_t{1} << 30));
      stream_.next_out = reinterpret_cast<Bytef*>(out) + got;
      stream_.avail_out = step;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      got += step - stream_.avail_out;
      if (status == Z_STREAM_END) {
        ended_ = !next_member();
      } else if (status == Z_MEM_ERROR) {
        throw std::bad_alloc();
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        blocks_->name.fail(fmt::format("broken gzip data near byte {}, after {} inflated bytes{}",
                                       packed_offset(), offset() + got,
                                       stream_.msg ? std::string(": ") + stream_.msg : ""));
      }
    }
    return got;
  }

  // Whether gzipped data follow gzipped data: a file may hold any number of them, one after the other.
  bool next_member() {
    const uint64_t end = packed_offset();
    uint8_t head[2];
    size_t got = 0;
    for (; got < 2; ++got) {
      if (stream_.avail_in == 0) {
        blocks_->refill();
        if (blocks_->size == 0) break;
        begin_block();
      }
      head[got] = *stream_.next_in++, --stream_.avail_in;
    }
    if (got == 0) return false;
    if (got < 2 || head[0] != kGzip[0] || head[1] != kGzip[1])
      blocks_->name.fail(fmt::format(
          "bytes after the end of the gzip data, at byte {}, expected none or more gzip data", end));
    if (inflateReset(&stream_) != Z_OK) throw std::bad_alloc();
    // The two bytes may come from different blocks of the file, so they are given again from here.
    Bytef* const in = stream_.next_in;
    const uInt left = stream_.avail_in;
    stream_.next_in = head, stream_.avail_in = 2, stream_.avail_out = 0;
    inflate(&stream_, Z_NO_FLUSH);
    stream_.next_in = in, stream_.avail_in = left;
    return true;
  }

  std::unique_ptr<Blocks> blocks_;
  z_stream stream_{};
  bool ended_ = false;
};

class Zstd final : public ByteStream {
 public:
  Zstd(OpenFile file, Named name) : name_(std::move(name)), unpacked_(std::move(file)) {}
  bool packed() const override { return true; }

 private:
  size_t some(std::byte* out, size_t count) override {
    size_t got = 0;
    for (std::string wrong; got < count;) {
      const size_t n = unpacked_.read(out + got, count - got, wrong);
      if (wrong.find("too much memory") != wrong.npos)
        throw_error(
            ErrorKind::unimplemented,
            fmt::format("[{}] {}: its zstd data look back further than the 128 MiB that are read; unpack it "
                        "(zstd -d --long=31), or pack it with a --long of 27 or less",
                        name_.tag, name_.path));
      if (!wrong.empty())
        name_.fail(fmt::format("broken zstd data, or cut short, near byte {}, after {} unpacked bytes: {}",
                               unpacked_.packed_offset(), offset() + got, wrong));
      if (n == 0) break;
      got += n;
    }
    return got;
  }
  const Named name_;
  detail::ZstdStream unpacked_;
};

bool is_gzip(const uint8_t* head, size_t size) {
  return size >= 2 && head[0] == kGzip[0] && head[1] == kGzip[1];
}
// Frames that are to be skipped may come first: pzstd writes them.
bool is_zstd(const uint8_t* head, size_t size) {
  if (size < kZstd.size()) return false;
  const bool skipped = (head[0] & 0xf0) == 0x50 && std::memcmp(head + 1, "\x2a\x4d\x18", 3) == 0;
  return skipped || std::memcmp(head, kZstd.data(), kZstd.size()) == 0;
}

}  // namespace

size_t ByteStream::read(void* out, size_t count) {
  const size_t got = some(static_cast<std::byte*>(out), count);
  offset_ += got;
  return got;
}

std::unique_ptr<ByteStream> ByteStream::open(const std::string& path, const char* tag,
                                             const std::string& expected) {
  std::unique_ptr<Blocks> blocks(new Blocks{{path, tag}, open_regular(path, tag, expected), {}});
  blocks->refill();
  if (is_gzip(blocks->in.data(), blocks->size)) return std::make_unique<Gzip>(std::move(blocks));
  if (!is_zstd(blocks->in.data(), blocks->size)) return std::make_unique<Plain>(std::move(blocks));
  detail::need_archive(tag, path);
  std::rewind(blocks->file.get());
  return std::make_unique<Zstd>(std::move(blocks->file), blocks->name);
}

bool is_packed(const std::string& path, const char* tag, const std::string& expected) {
  const OpenFile file = open_regular(path, tag, expected);
  uint8_t head[4];
  const size_t size = std::fread(head, 1, sizeof head, file.get());
  return is_gzip(head, size) || is_zstd(head, size);
}

}  // namespace troupe::datasets
