#include "data/datasets/token_file.h"

#include <fmt/format.h>

#include <cstring>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "data/formats/file.h"

namespace troupe::datasets {

namespace {

void check_bytes(int bytes) {
  if (bytes != 2 && bytes != 4)
    throw_invalid(fmt::format("[tokens] {} bytes for an id: expected 2 or 4", bytes));
}

}  // namespace

TokenFile::TokenFile(const std::string& path, int bytes)
    : file_(std::make_shared<const UnchangedFile>(path, "tokens", "a file of token ids")),
      bytes_(bytes),
      size_(0) {
  check_bytes(bytes);
  size_ = static_cast<int64_t>(file_->size()) / bytes;
  if (!size_ || static_cast<size_t>(size_ * bytes) != file_->size())
    throw_invalid(fmt::format("[tokens] {}: has {} bytes, expected a whole number of ids of {}", path,
                              file_->size(), bytes));
}

Tensor TokenFile::read(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || count > size_ - first)
    throw_invalid(fmt::format("[tokens] {}: ids {} to {} were asked for, and it has {}", file_->path(), first,
                              first + count, size_));
  const Tensor out = empty({count}, int64);
  auto* to = out.data<int64_t>();
  std::vector<std::byte> bytes(static_cast<size_t>(count * bytes_));
  file_->read(static_cast<size_t>(first * bytes_), bytes);
  const std::byte* from = bytes.data();
  for (int64_t i = 0; i < count; ++i, from += bytes_) {
    uint32_t id = 0;  // bytes one by one: the file's order is not that of every processor
    for (int b = 0; b < bytes_; ++b) id |= std::to_integer<uint32_t>(from[b]) << (8 * b);
    to[i] = id;
  }
  return out;
}

Dataset TokenFile::random_windows(int64_t context, int64_t count, Generator& random, int64_t from,
                                  int64_t to) const {
  if (to == 0) to = size_;
  if (context < 1 || count < 0 || from < 0 || to > size_ || to - from <= context)
    throw_invalid(fmt::format(
        "[tokens] {}: {} windows of {} in ids {} to {}, of {}: expected more ids than a window has",
        file_->path(), count, context, from, to, size_));
  const Dataset out{empty({count, context}, int64), empty({count, context}, int64)};
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = static_cast<int64_t>(random.below(static_cast<uint64_t>(to - from - context)));
    const Tensor ids = read(from + begin, context + 1);
    std::memcpy(out.x.data<int64_t>() + i * context, ids.data<int64_t>(),
                static_cast<size_t>(context) * sizeof(int64_t));
    std::memcpy(out.y.data<int64_t>() + i * context, ids.data<int64_t>() + 1,
                static_cast<size_t>(context) * sizeof(int64_t));
  }
  return out;
}

void write_token_file(const std::string& path, const std::vector<int64_t>& ids, int bytes) {
  check_bytes(bytes);
  const int64_t most = bytes == 2 ? 0xffff : 0xffffffff;
  std::vector<unsigned char> out;
  out.reserve(ids.size() * static_cast<size_t>(bytes));
  for (const int64_t id : ids) {
    if (id < 0 || id > most)
      throw_invalid(fmt::format("[tokens] id {} does not fit into {} bytes", id, bytes));
    for (int b = 0; b < bytes; ++b) out.push_back(static_cast<unsigned char>(id >> (8 * b) & 0xff));
  }
  AtomicFile file(path, "tokens");
  file.write(out.data(), out.size());
  file.commit();
}

}  // namespace troupe::datasets
