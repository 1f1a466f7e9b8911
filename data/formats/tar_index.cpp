#include "data/formats/tar_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <clocale>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "data/formats/zstd_stream.h"
#ifdef TROUPE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace troupe::datasets::detail {

#ifdef TROUPE_ARCHIVE

namespace {

constexpr uint64_t kTarBlock = 512, kSizeField = 124;
constexpr int64_t kMostOctal = (int64_t{1} << 33) - 1;

// The archive as libarchive reads it: what is between headers is passed over. An exception waits here until
// the C functions have returned.
struct TarBytes {
  const UnchangedFile& file;
  uint64_t at = 0;
  std::vector<std::byte> part = std::vector<std::byte>(size_t{1} << 14);
  std::exception_ptr thrown = nullptr;

  static la_ssize_t fill(archive* reader, void* state, const void** bytes) {
    auto& self = *static_cast<TarBytes*>(state);
    const size_t size = std::min<uint64_t>(self.part.size(), self.file.size() - self.at);
    try {
      self.file.read(self.at, std::span(self.part).first(size));
    } catch (...) {
      self.thrown = std::current_exception();
      archive_set_error(reader, -1, "the file cannot be read");
      return -1;
    }
    self.at += size;
    *bytes = self.part.data();
    return static_cast<la_ssize_t>(size);
  }
  static la_int64_t skip(archive*, void* state, la_int64_t count) {
    auto& self = *static_cast<TarBytes*>(state);
    const auto step = std::min<uint64_t>(static_cast<uint64_t>(count), self.file.size() - self.at);
    self.at += step;
    return static_cast<la_int64_t>(step);
  }
};

// Names are UTF-8, whatever the locale of the program: libarchive turns them into the thread's.
class Utf8Names {
 public:
  Utf8Names() : names_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(uselocale(names_)) {}
  ~Utf8Names() {
    uselocale(before_);
    if (names_) freelocale(names_);
  }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;

 private:
  const locale_t names_, before_;
};

// Whether blocks of zeros are there, with which an archive ends.
bool ends_in_zeros(const UnchangedFile& file, uint64_t at) {
  std::vector<std::byte> block(kTarBlock);
  if (at + kTarBlock > file.size()) return false;
  file.read(at, block);
  return std::ranges::all_of(block, [](std::byte b) { return b == std::byte{0}; });
}

[[noreturn]] void refuse_size(const UnchangedFile& file, const TarMember& member, const std::string& why) {
  throw_invalid(
      fmt::format("[tar] {}: {} at byte {} has {} bytes by its headers, and {}: make the archive anew, "
                  "without holes in files",
                  file.path(), member.name, member.offset, member.size, why));
}

// A header of more may come before a member's own one, and say that it had another size when it was packed:
// libarchive believes it, and passes over the bytes that are there.
void check_size(const UnchangedFile& file, const TarMember& member, int64_t declared, uint64_t first_header) {
  if (declared < 0) refuse_size(file, member, "a size below 0");
  if (first_header + kTarBlock >= member.offset || declared > kMostOctal) return;
  std::array<char, 12> digits;
  file.read(member.offset - kTarBlock + kSizeField, std::as_writable_bytes(std::span(digits)));
  uint64_t size = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), size, 8).ec != std::errc()) return;
  if (size != 0 && size != member.size)
    refuse_size(file, member, fmt::format("{} by the last of them", size));
}

std::string error_of(archive* reader) {
  const char* text = archive_error_string(reader);
  return text ? text : "not tar data";
}

}  // namespace

std::string each_tar_member(const UnchangedFile& archive_file,
                            const std::function<void(const TarMember&)>& f) {
  need_archive("tar", archive_file.path());
  const Utf8Names names;
  const std::unique_ptr<archive, int (*)(archive*)> reader(archive_read_new(), archive_read_free);
  if (!reader) throw std::bad_alloc();
  TarBytes bytes{archive_file};
  archive_read_support_format_tar(reader.get());
  archive_read_set_read_callback(reader.get(), TarBytes::fill);
  archive_read_set_skip_callback(reader.get(), TarBytes::skip);
  archive_read_set_callback_data(reader.get(), &bytes);
  int status = archive_read_open1(reader.get());
  uint64_t end = 0;
  std::optional<TarMember> last;  // whose size the place of the next header has yet to confirm
  for (bool first = true; status == ARCHIVE_OK; first = false) {
    archive_entry* entry = nullptr;
    status = archive_read_next_header(reader.get(), &entry);
    if (bytes.thrown) std::rethrow_exception(bytes.thrown);
    if (status == ARCHIVE_WARN) status = ARCHIVE_OK;
    const auto place = static_cast<uint64_t>(archive_read_header_position(reader.get()));
    if (last && (status == ARCHIVE_OK || status == ARCHIVE_EOF) && place != end)
      refuse_size(archive_file, *last, fmt::format("what is behind it begins at byte {}", place));
    if (last) f(*std::exchange(last, {}));
    if (status == ARCHIVE_EOF && ends_in_zeros(archive_file, place)) return {};
    if (status == ARCHIVE_EOF)
      return fmt::format("ends at byte {} without the blocks of zeros that end an archive: was it cut off?",
                         archive_file.size());
    if (status != ARCHIVE_OK && first)
      throw_invalid(fmt::format("[tar] {}: no tar archive: {}", archive_file.path(), error_of(reader.get())));
    if (status != ARCHIVE_OK)
      return fmt::format("cannot be read behind byte {}: {}; was it cut off?",
                         std::min<uint64_t>(end, archive_file.size()), error_of(reader.get()));
    const int64_t declared = archive_entry_size(entry);
    const auto size = static_cast<uint64_t>(std::max<int64_t>(declared, 0));
    const auto offset = static_cast<uint64_t>(archive_filter_bytes(reader.get(), 0));
    end = offset + (size + kTarBlock - 1) / kTarBlock * kTarBlock;
    const char* name = archive_entry_pathname(entry);
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) || !name) continue;
    if (archive_entry_sparse_count(entry) > 0)
      throw_error(ErrorKind::unimplemented,
                  fmt::format("[tar] {}: {} has holes, which are not read: make the archive without --sparse",
                              archive_file.path(), name));
    last = {name, offset, size};
    check_size(archive_file, *last, declared, place);
  }
  throw_invalid(fmt::format("[tar] {}: no tar archive: {}", archive_file.path(), error_of(reader.get())));
}

#else

std::string each_tar_member(const UnchangedFile& archive_file, const std::function<void(const TarMember&)>&) {
  need_archive("tar", archive_file.path());
  return {};
}

#endif

}  // namespace troupe::datasets::detail
