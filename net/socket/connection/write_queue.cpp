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

void WriteQueue::push(std::vector<std::byte> head, Message message) {
  bytes_ += head.size() + 8 * message.header.size() + message.buffer_bytes();
  frames_.push_back({std::move(head), std::move(message)});
}

WriteQueue::Outcome WriteQueue::write_to(Stream& stream, size_t budget) {
  size_t done = 0;
  while (!frames_.empty()) {
    if (done >= budget) return Outcome::budget;
    iovec parts[kMaxParts];
    size_t n = 0, asked = 0;
    bool all = true;
    for (auto f = frames_.begin(); f != frames_.end() && n < kMaxParts && all; ++f) {
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
    }
    msghdr m{};
    m.msg_iov = parts;
    m.msg_iovlen = n;
    const ssize_t got = stream.send(m);
    if (got < 0) {
      if (errno == EINTR) continue;
      const bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
      return full ? Outcome::blocked : Outcome::broken;
    }
    written(static_cast<size_t>(got));
    done += static_cast<size_t>(got);
    if (static_cast<size_t>(got) < asked && !stream.tls()) return Outcome::blocked;
  }
  return Outcome::drained;
}

void WriteQueue::written(size_t n) {
  bytes_ -= n;
  while (!frames_.empty()) {
    Frame& f = frames_.front();
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
    frames_.pop_front();  // lets go of its storages
  }
}

void WriteQueue::clear() {
  frames_.clear();
  bytes_ = 0;
}

}  // namespace troupe::internal::net
