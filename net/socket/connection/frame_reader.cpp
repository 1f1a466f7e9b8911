#include "net/socket/connection/frame_reader.h"

#include <algorithm>
#include <cstring>

namespace troupe::internal::net {
namespace {

constexpr size_t kAllocateAhead = 4 << 20;  // bytes of buffers whose turn has not come yet

// Where the bytes of a buffer arrive. For a device that is here: memory that it reads while more arrives.
Buffer incoming(size_t size, Device device) {
  if (!device.is_cpu() && size != 0 && has_device(device)) try {
      if (const auto pinned = backend_of(device).pinned_buffer(size, device)) {
        pinned->there = Storage::allocate(size, device);
        return {.storage = Storage::wrap(pinned->data(), size, pinned), .size = size, .pinned = pinned.get()};
      }
    } catch (const std::exception&) {  // no memory there: whoever decodes the message says so
    }
  return {.storage = Storage::allocate(size), .size = size};
}

}  // namespace

std::span<std::byte> FrameReader::target() {
  switch (step_) {
    case Step::prefix:
      return prefix_bytes_;
    case Step::sizes:
      return std::as_writable_bytes(std::span(size_words_));
    case Step::header:
      return std::as_writable_bytes(std::span(frame_.message.header));
    case Step::reason:
      return std::as_writable_bytes(std::span(frame_.reason.data(), frame_.reason.size()));
    case Step::payload:
      break;
  }
  if (sizes_[current_].exported) return std::as_writable_bytes(std::span(&place_, 1));
  allocate(current_);
  return {frame_.message.buffers[current_].data(), sizes_[current_].bytes};
}

std::optional<ReadFrame> FrameReader::feed(std::span<const std::byte>& bytes) {
  while (!bytes.empty()) {
    const auto to = target().subspan(filled_);
    const size_t n = std::min(to.size(), bytes.size());
    std::memcpy(to.data(), bytes.data(), n);
    bytes = bytes.subspan(n);
    filled_ += n;
    if (step_ == Step::payload) forward();
    if (n == to.size())
      if (auto frame = next_step()) return frame;
  }
  return {};
}

// The current target is full: goes on to the next one that has bytes, or completes the frame.
std::optional<ReadFrame> FrameReader::next_step() {
  filled_ = 0;
  switch (step_) {
    case Step::prefix:
      prefix_ = decode_prefix(prefix_bytes_, limits_);
      frame_.kind = prefix_.kind;
      frame_.number = prefix_.number;
      if (prefix_.kind == FrameKind::heartbeat) frame_.port = static_cast<uint16_t>(prefix_.count);
      if (prefix_.kind == FrameKind::lanes) frame_.lanes = prefix_.count;
      if (prefix_.kind == FrameKind::ring_answer || prefix_.kind == FrameKind::arena_answer)
        frame_.accepted = prefix_.count == 1;
      if (prefix_.kind != FrameKind::message && prefix_.kind != FrameKind::goodbye) return complete();
      if (prefix_.kind == FrameKind::goodbye) {
        frame_.reason.resize(prefix_.count);
        step_ = Step::reason;
        return prefix_.count == 0 ? complete() : std::nullopt;
      }
      size_words_.resize(prefix_.count);
      step_ = Step::sizes;
      if (prefix_.count != 0) return {};
      [[fallthrough]];
    case Step::sizes:
      sizes_ = decode_sizes(size_words_, limits_);
      frame_.message.header.resize(prefix_.header_words);
      step_ = Step::header;
      if (prefix_.header_words != 0) return {};
      [[fallthrough]];
    case Step::header:
      step_ = Step::payload;
      current_ = 0;
      break;
    case Step::payload:
      if (sizes_[current_].exported) adopt();
      ++current_;
      break;
    case Step::reason:
      return complete();
  }
  skip_empty();
  return current_ == sizes_.size() ? complete() : std::nullopt;
}

void FrameReader::skip_empty() {
  while (current_ < sizes_.size() && sizes_[current_].travelling() == 0) allocate(current_++);
}

void FrameReader::allocate(size_t index) {
  auto& buffers = frame_.message.buffers;
  while (buffers.size() <= index) {
    const auto& [size, exported, device] = sizes_[buffers.size()];
    buffers.push_back(incoming(size, device));
  }
}

// Forwards the part of the current buffer that has arrived to its device.
void FrameReader::forward() {
  if (current_ >= frame_.message.buffers.size()) return;  // it is exported
  PinnedBuffer* const pinned = frame_.message.buffers[current_].pinned;
  if (!pinned || !pinned->there) return;
  try {
    pinned->forward(filled_);
  } catch (const std::exception&) {  // the device has failed: whoever decodes the message says so
    pinned->there = {};
  }
}

void FrameReader::adopt() {
  if (!arena_) throw_invalid("[net] a buffer in shared memory on a connection that has none");
  const size_t size = sizes_[current_].bytes;
  frame_.message.buffers.push_back({arena_->adopt(place_, size), 0, size});
}

size_t FrameReader::direct(std::span<iovec> out) {
  if (step_ != Step::payload) return 0;
  size_t n = 0, ahead = 0;
  for (size_t i = current_; i < sizes_.size() && n < out.size() && ahead < kAllocateAhead; ++i) {
    if (sizes_[i].exported || (i > current_ && ahead + sizes_[i].bytes > kAllocateAhead)) break;
    allocate(i);
    const size_t skip = i == current_ ? filled_ : 0;
    const size_t left = sizes_[i].bytes - skip;
    if (left == 0) continue;
    out[n++] = {frame_.message.buffers[i].data() + skip, left};
    ahead += left;
  }
  return n;
}

std::optional<ReadFrame> FrameReader::advance(size_t n) {
  while (n > 0) {
    const size_t left = sizes_[current_].bytes - filled_, here = std::min(n, left);
    filled_ += here;
    forward();
    if (here < left) return {};
    n -= here;
    if (auto frame = next_step()) return frame;
  }
  return {};
}

std::optional<ReadFrame> FrameReader::complete() {
  step_ = Step::prefix;
  sizes_.clear();
  size_words_.clear();
  std::optional<ReadFrame> frame(std::move(frame_));
  frame_ = {};
  return frame;
}

}  // namespace troupe::internal::net
