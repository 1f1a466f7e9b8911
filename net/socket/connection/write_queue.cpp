#include "net/socket/connection/write_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace troupe::internal::net {
namespace {

constexpr size_t kMaxParts = 256;  // of one call; below IOV_MAX, and small enough for the stack

}  // namespace

WriteQueue::Frame::Part WriteQueue::Frame::at(size_t i) const {
  if (i == 0) return {head.data(), head.size()};
  if (i == 1) return {reinterpret_cast<const std::byte*>(message.header.data()), 8 * message.header.size()};
  const auto bytes = message.buffers[i - 2].travelling();
  return {bytes.data(), bytes.size()};
}

void WriteQueue::push(std::vector<std::byte> head, bool numbered, Message message) {
  const size_t size = head.size() + 8 * message.header.size() + message.buffer_bytes();
  bytes_ += size;
  frames_.push({.head = std::move(head), .message = std::move(message), .numbered = numbered, .size = size});
}

void WriteQueue::push_last(std::vector<std::byte> head) {
  const size_t size = head.size();
  bytes_ += size;
  frames_.push({.head = std::move(head), .message = {}, .last = true, .size = size});
}

void WriteQueue::push_ahead(std::vector<std::byte> head) {
  const size_t size = head.size();
  bytes_ += size;
  frames_.push_ahead({.head = std::move(head), .message = {}, .size = size}, /*begun=*/false);
}

bool WriteQueue::acknowledge(uint32_t received, std::vector<Frame>& over) {
  const size_t before = over.size();
  const bool sent = frames_.acknowledge(received, over);
  for (size_t i = before; i < over.size(); ++i) kept_ -= over[i].size;
  return sent;
}

bool WriteQueue::again(uint32_t received, std::vector<Frame>& over) {
  const bool sent = frames_.again(received, over);
  bytes_ = kept_ = 0;
  for (Frame& f : frames_.waiting()) {
    f.part = f.offset = 0;
    bytes_ += f.size;
  }
  return sent;
}

WriteQueue::Outcome WriteQueue::write_to(Stream& stream, size_t budget) {
  size_t done = 0;
  auto& frames = frames_.waiting();
  while (!frames.empty()) {
    if (done >= budget) return Outcome::budget;
    iovec parts[kMaxParts];
    size_t n = 0, asked = 0, kept = kept_;
    bool all = true;
    for (auto f = frames.begin(); f != frames.end() && n < kMaxParts && all; ++f) {
      if (most_kept_ && f->numbered) [[unlikely]] {
        if (kept >= most_kept_ && f->part == 0 && f->offset == 0) break;
        kept += f->size;
      }
      for (size_t i = f->part; i < f->parts() && n < kMaxParts && all; ++i) {
        const auto [data, size] = f->at(i);
        const size_t skip = i == f->part ? f->offset : 0;
        if (size == skip) continue;
        size_t end = size;
        if (PinnedBuffer* const pinned = f->pinned(i)) [[unlikely]] {
          end = pinned->arrived(n == 0 ? skip + 1 : 0);
          all = end == size;
          if (end <= skip) break;
        }
        parts[n++] = {const_cast<std::byte*>(data) + skip, end - skip};
        asked += end - skip;
      }
      all = all && !f->last;
    }
    if (n == 0) return Outcome::unacknowledged;
    msghdr m{};
    m.msg_iov = parts;
    m.msg_iovlen = n;
    const ssize_t got = stream.send(m);
    if (got < 0) {
      if (errno == EINTR) continue;
      const bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
      return full ? Outcome::blocked : Outcome::broken;
    }
    const bool full = static_cast<size_t>(got) < asked && stream.part_is_full();
    written(static_cast<size_t>(got), stream);
    done += static_cast<size_t>(got);
    if (full) return Outcome::blocked;
  }
  return Outcome::drained;
}

void WriteQueue::written(size_t n, Stream& stream) {
  bytes_ -= n;
  while (!frames_.waiting().empty()) {
    Frame& f = frames_.waiting().front();
    while (f.part < f.parts()) {
      const size_t left = f.at(f.part).size - f.offset;
      if (n < left) {
        f.offset += n;
        return;
      }
      n -= left;
      ++f.part;
      f.offset = 0;
    }
    if (f.last) stream.write_lanes();
    if (most_kept_ && f.numbered) kept_ += f.size;
    frames_.written(most_kept_ != 0);  // lets go of its storages, unless it keeps it
  }
}

void WriteQueue::clear() {
  frames_.clear();
  bytes_ = kept_ = 0;
}

}  // namespace troupe::internal::net
