#include "data/formats/zstd_stream.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "core/base/error.h"
#ifdef TROUPE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace troupe::datasets::detail {

#ifdef TROUPE_ARCHIVE

void need_archive(const char*, const std::string&) {}

struct ZstdStream::State {
  OpenFile file;
  archive* reader = archive_read_new();
  bool begun = false;
  uint64_t taken = 0;
  std::array<char, 1 << 16> in;

  static la_ssize_t fill(archive* reader, void* state, const void** bytes) {
    auto& self = *static_cast<State*>(state);
    const size_t size = std::fread(self.in.data(), 1, self.in.size(), self.file.get());
    if (std::ferror(self.file.get())) {
      archive_set_error(reader, errno, "the file cannot be read");
      return -1;
    }
    self.taken += size;
    *bytes = self.in.data();
    return static_cast<la_ssize_t>(size);
  }
};

ZstdStream::ZstdStream(OpenFile file) : state_(new State{std::move(file)}) {
  if (!state_->reader) throw std::bad_alloc();
}
ZstdStream::~ZstdStream() { archive_read_free(state_->reader); }

size_t ZstdStream::read(void* out, size_t count, std::string& wrong) {
  archive* const reader = state_->reader;
  const auto refused = [&] {
    const char* text = archive_error_string(reader);
    wrong = text ? text : "not zstd data";
    return size_t{0};
  };
  if (!state_->begun) {
    state_->begun = true;
    archive_read_support_filter_zstd(reader);
    archive_read_support_format_raw(reader);
    archive_read_support_format_empty(reader);
    if (archive_read_open(reader, state_.get(), nullptr, State::fill, nullptr) != ARCHIVE_OK)
      return refused();
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(reader, &entry);
    if (status == ARCHIVE_EOF) return 0;
    if (status != ARCHIVE_OK) return refused();
  }
  const la_ssize_t n = archive_read_data(reader, out, count);
  return n < 0 ? refused() : static_cast<size_t>(n);
}

uint64_t ZstdStream::packed_offset() const { return state_->taken; }

#else

void need_archive(const char* tag, const std::string& path) {
  throw_error(ErrorKind::unimplemented,
              fmt::format("[{}] {}: this build has no libarchive, which reads tar and zstd: install Debian's "
                          "libarchive-dev, and build again",
                          tag, path));
}

struct ZstdStream::State {};
ZstdStream::ZstdStream(OpenFile) {}
ZstdStream::~ZstdStream() = default;
size_t ZstdStream::read(void*, size_t, std::string&) { return 0; }
uint64_t ZstdStream::packed_offset() const { return 0; }

#endif

}  // namespace troupe::datasets::detail
