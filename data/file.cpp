// Opening, mapping and replacing files.
#include "data/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"

namespace troupe::data {
namespace {

[[noreturn]] void refuse(const char* tag, const std::string& path, const std::string& what) {
  throw_invalid("[" + std::string(tag) + "] " + path + ": " + what);
}

struct Descriptor {
  int fd;
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};

// Of a regular file; its size in bytes goes to `size`.
int open_descriptor(const std::string& path, const char* tag, const std::string& expected, size_t& size) {
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.fd < 0 && (errno == ENOENT || errno == ENOTDIR)) refuse(tag, path, "no such file");
  if (file.fd < 0) refuse(tag, path, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat status;
  if (::fstat(file.fd, &status) != 0) refuse(tag, path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse(tag, path, "is a directory, expected " + expected);
  if (!S_ISREG(status.st_mode)) refuse(tag, path, "is not a regular file, expected " + expected);
  size = static_cast<size_t>(status.st_size);
  return file.release();
}

}  // namespace

OpenFile open_regular(const std::string& path, const char* tag, const std::string& expected) {
  size_t size;
  Descriptor file(open_descriptor(path, tag, expected, size));
  OpenFile stream(::fdopen(file.fd, "rb"), &std::fclose);
  if (!stream) refuse(tag, path, std::string("cannot be opened: ") + std::strerror(errno));
  file.release();
  return stream;
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path, const char* tag,
                                                   const std::string& expected) {
  size_t size;
  const Descriptor file(open_descriptor(path, tag, expected, size));
  void* data = nullptr;
  if (size > 0) {  // writable, so that an update in place of a loaded tensor works; nothing reaches the file
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd, 0);
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
    Tensor copy = Tensor::empty(shape, dtype);
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

AtomicFile::AtomicFile(std::string path, const char* tag) : path_(std::move(path)), tag_(tag) {
  if (std::error_code none; std::filesystem::is_directory(path_, none))
    refuse(tag_, path_, "cannot be written: it is a folder");
  static std::atomic<uint64_t> counter{0};
  for (int attempt = 0; attempt < 100 && fd_ < 0; ++attempt) {
    temporary_ = path_ + ".writing-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) break;
  }
  if (fd_ < 0) refuse(tag_, path_, std::string("cannot be written: ") + std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const {
  throw_error(ErrorKind::failed,
              "[" + std::string(tag_) + "] " + path_ + ": " + what + ": " + std::strerror(errno));
}

void AtomicFile::write(const void* bytes, size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t n = ::write(fd_, from, std::min(count, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot be written");
    from += n, count -= static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail("cannot be flushed to the disk");
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0) fail("cannot be closed");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed from its temporary name");
  temporary_.clear();
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const Descriptor dir(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.fd >= 0) ::fsync(dir.fd);  // some file systems know no such thing; the file itself is safe
}

}  // namespace troupe::data
