// Opening, mapping and replacing files.
#include "data/formats/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/regular_file.h"
#include "core/base/shown.h"
#include "core/tensor/creation.h"

namespace troupe::datasets {
namespace fs = std::filesystem;
namespace {

constexpr const char* kInfix = ".writing-";
constexpr int kMostLinks = 40;  // as the system
constexpr std::string_view kPickle =
    "a Python pickle, which is a program and never read: load it in Python, and save its tensors with "
    "safetensors";

[[noreturn]] void refuse(const char* tag, const std::string& path, const std::string& what) {
  throw_invalid("[" + std::string(tag) + "] " + path + ": " + what);
}

using internal::Descriptor;

Descriptor open_descriptor(const std::string& path, const char* tag, const std::string& expected,
                           size_t& size) {
  return open_regular_file(path, "[" + std::string(tag) + "] ", expected, size);
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Where a path leads if it is a symbolic link, also one to a file that is not there yet.
std::string behind_links(const std::string& path, const char* tag) {
  fs::path at = path;
  std::error_code none;
  for (int links = 0; fs::is_symlink(fs::symlink_status(at, none)); ++links) {
    if (links == kMostLinks) refuse(tag, path, std::string("cannot be written: ") + std::strerror(ELOOP));
    const fs::path to = fs::read_symlink(at, none);
    if (none) refuse(tag, path, "cannot be written: " + none.message());
    at = at.parent_path() / to;  // `to` alone if it is absolute
  }
  return at.string();
}

// While it lives, a write beyond the limit of a file's size fails with EFBIG on this thread and raises no
// SIGXFSZ.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~NoSizeSignal() {
    const int error = errno;
    const timespec at_once{};
    while (!was_pending_ && sigtimedwait(&set_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  sigset_t set_, before_;
  bool was_pending_;
};

}  // namespace

std::string instead(std::string_view head) {
  using namespace std::string_view_literals;
  struct Format {
    std::string_view magic, what;
  };
  static constexpr Format formats[] = {
      {"\x1f\x8b"sv, "gzip data: unpack it first (gunzip)"},
      {"PK\3\4"sv,
       "a ZIP archive, as .npz and .pt files are: unzip an .npz and read each .npy in it, or load it in "
       "Python and "
       "save its tensors with safetensors"},
      {"PK\5\6"sv, "a ZIP archive without files"},
      {"BZh91AY&SY"sv, "bzip2 data: unpack it first (bunzip2)"},
      {"\xfd"
       "7zXZ\0"sv,
       "xz data: unpack it first (unxz)"},
      {"\x28\xb5\x2f\xfd"sv, "zstd data: unpack it first (unzstd)"},
      {"\x93NUMPY"sv, "an NPY file: read_npy() reads it"},
      {"\x89HDF\r\n"sv, "an HDF5 file: load it in Python, and save its arrays as NPY or safetensors"},
      {"\x80\2"sv, kPickle},
      {"\x80\3"sv, kPickle},
      {"\x80\4"sv, kPickle},
      {"\x80\5"sv, kPickle},
      {"\xff\xfe"sv, "text in UTF-16: save it as UTF-8"},
      {"\xfe\xff"sv, "text in UTF-16: save it as UTF-8"},
  };
  for (const Format& f : formats)
    if (head.starts_with(f.magic)) return ", it is " + std::string(f.what);
  return {};
}

OpenFile open_regular(const std::string& path, const char* tag, const std::string& expected) {
  size_t size;
  Descriptor file = open_descriptor(path, tag, expected, size);
  OpenFile stream(::fdopen(file.get(), "rb"), &std::fclose);
  if (!stream) refuse(tag, path, std::string("cannot be opened: ") + std::strerror(errno));
  file.release();
  return stream;
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path, const char* tag,
                                                   const std::string& expected) {
  size_t size;
  const Descriptor file = open_descriptor(path, tag, expected, size);
  void* data = nullptr;
  if (size > 0) {  // writable, so that an update in place of a loaded tensor works; nothing reaches the file
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
    if (data == MAP_FAILED) refuse(tag, path, std::string("cannot be mapped: ") + std::strerror(errno));
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

Tensor tensor_in(const std::shared_ptr<const MappedFile>& file, size_t offset, const Shape& shape,
                 DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * item_size(dtype);
  std::byte* from = file->data_ + offset;
  if (bytes == 0 || reinterpret_cast<uintptr_t>(from) % item_size(dtype) != 0) {
    Tensor copy = empty(shape, dtype);
    if (bytes > 0) std::memcpy(copy.bytes(), from, bytes);
    return copy;
  }
  auto storage = Storage::wrap(from, bytes, std::const_pointer_cast<MappedFile>(file));
  return Tensor(make_ref<TensorImpl>(std::move(storage), shape, shape.contiguous_strides(), 0, dtype, true));
}

int64_t find_bad_bool(std::span<const std::byte> bytes) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  return bad == bytes.end() ? -1 : bad - bytes.begin();
}

void flush_folder(const std::string& folder, const char* tag) {
  const Descriptor dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir && errno == EACCES) return;  // one that may be written to, but not listed
  if (!dir || (::fsync(dir.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EBADF))
    throw_error(ErrorKind::failed, "[" + std::string(tag) + "] " + folder +
                                       ": cannot be flushed to the disk: " + std::strerror(errno));
}

// Past the cache, bytes come from addresses and go to places that are multiples of the disk's blocks.
struct AtomicFile::Block {
  alignas(4096) std::byte bytes[size_t{1} << 20];
  size_t held = 0;
};

AtomicFile::AtomicFile(std::string path, const char* tag, Through through)
    : path_(std::move(path)), tag_(tag) {
  if (path_.empty()) refuse(tag_, path_, "cannot be written: the name is empty");
  refuse_nul(std::string("[") + tag_ + "]", path_);
  target_ = behind_links(path_, tag_);
  std::error_code none;
  const fs::file_status status = fs::status(target_, none);
  if (fs::is_directory(status)) refuse(tag_, path_, "cannot be written: it is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status))
    refuse(tag_, path_, "cannot be written: it is not a regular file");
  remove_abandoned();
  if (!open_unnamed()) open_named();
  if (through == Through::disk) block_ = std::make_unique_for_overwrite<Block>();
}

std::string AtomicFile::next_name() const {
  static std::atomic<uint64_t> counter{0};
  return target_ + kInfix + std::to_string(::getpid()) + "-" + std::to_string(counter++);
}

// Without a name it is gone with this process. Needs the file system's help, and /proc to be named later.
bool AtomicFile::open_unnamed() {
  if (::access("/proc/self/fd", X_OK) != 0) return false;
  fd_.reset(::open(folder_of(target_).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
  if (fd_) ::flock(fd_.get(), LOCK_EX | LOCK_NB);
  return bool(fd_);
}

void AtomicFile::open_named() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = next_name();
    fd_.reset(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd_ && errno == EEXIST) continue;
    if (!fd_) break;
    // The lock says that it is not abandoned; before it, somebody may have thought so.
    struct stat status;
    ::flock(fd_.get(), LOCK_EX | LOCK_NB);
    if (::fstat(fd_.get(), &status) == 0 && status.st_nlink > 0) return;
    fd_.reset();
  }
  const int error = errno;
  temporary_.clear();
  refuse(tag_, path_, std::string("cannot be written: ") + std::strerror(error));
}

// Of processes that are gone: they hold no lock on them any more.
void AtomicFile::remove_abandoned() const {
  const std::string start = fs::path(target_).filename().string() + kInfix;
  std::error_code none;
  for (fs::directory_iterator at(folder_of(target_), none), end; !none && at != end; at.increment(none)) {
    if (!at->path().filename().string().starts_with(start)) continue;
    const Descriptor file(::open(at->path().c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(at->path().c_str());
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const {
  throw_error(ErrorKind::failed,
              "[" + std::string(tag_) + "] " + path_ + ": " + what + ": " + std::strerror(errno));
}

// False: the file system does not do that.
bool AtomicFile::pass_cache(bool yes) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, yes ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) return false;
  passes_cache_ = yes;
  return true;
}

void AtomicFile::write(const void* bytes, size_t count) {
  if (!block_) return put(bytes, count);
  for (const auto* from = static_cast<const std::byte*>(bytes); count > 0;) {
    const size_t part = std::min(count, sizeof block_->bytes - block_->held);
    std::memcpy(block_->bytes + block_->held, from, part);
    from += part, count -= part, block_->held += part;
    if (block_->held < sizeof block_->bytes) continue;
    if (!passes_cache_ && !pass_cache(true)) {
      const std::unique_ptr<Block> last = std::move(block_);
      put(last->bytes, last->held);
      return put(from, count);
    }
    put(block_->bytes, std::exchange(block_->held, 0));
  }
}

void AtomicFile::put(const void* bytes, size_t count) {
  const NoSizeSignal guard;
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t n = ::write(fd_.get(), from, std::min(count, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && passes_cache_ && pass_cache(false)) continue;  // other blocks than ours
    if (n < 0) fail("cannot be written");
    from += n, count -= static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  if (block_) {
    if (passes_cache_ && block_->held % 4096 != 0 && !pass_cache(false)) fail("cannot be written");
    put(block_->bytes, block_->held);
    block_.reset();
  }
  if (::fsync(fd_.get()) != 0) fail("cannot be flushed to the disk");
  if (temporary_.empty()) {
    const std::string file = "/proc/self/fd/" + std::to_string(fd_.get());
    int linked = -1;
    for (int attempt = 0; attempt < 100 && linked != 0; ++attempt) {
      temporary_ = next_name();
      linked = ::linkat(AT_FDCWD, file.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW);
      if (linked != 0 && errno != EEXIST) break;
    }
    if (linked != 0) {
      temporary_.clear();
      fail("cannot be given a name");
    }
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot be renamed from its temporary name");
  temporary_.clear();
  fd_.reset();  // after the rename: its lock ends here
  flush_folder(folder_of(target_), tag_);
}

void write_file(const std::string& path, std::string_view text, const char* tag) {
  AtomicFile file(path, tag);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace troupe::datasets
