#include "parallel/server/compression/compression_tuner.h"

#include <algorithm>
#include <bit>

namespace troupe::parallel {

WireTimes::Sample WireTimes::Window::fastest() const {
  const auto end = last.begin() + static_cast<ptrdiff_t>(std::min(count, last.size()));
  return *std::min_element(last.begin(), end,
                           [](const Sample& a, const Sample& b) { return a.ns * b.bytes < b.ns * a.bytes; });
}

void WireTimes::took(int64_t bytes, bool encoded, Duration time) {
  if (bytes <= 0) return;
  (encoded ? encoded_ : plain_)
      .add({static_cast<double>(bytes), std::max(0., static_cast<double>(time.count()))});
}

double WireTimes::ns_per_byte() const {
  if (plain_.count == 0) return 0;
  const Sample large = plain_.fastest();
  if (encoded_.count > 0) {
    const Sample small = encoded_.fastest();
    if (small.bytes < 0.9 * large.bytes)
      return std::max(0., (large.ns - small.ns) / (large.bytes - small.bytes));
  }
  return large.ns / large.bytes;
}

bool CompressionTuner::next(const WireTimes& wire) {
  const int64_t message = messages_++;
  if (always_) return true;
  if (message < kFirst) return message >= kFirst / 2;
  const bool look = std::has_single_bit(static_cast<uint64_t>(message)) && message > kFirst;
  return pays(wire) != look;
}

void CompressionTuner::coded(int64_t saved_bytes, Duration time) {
  if (saved_bytes <= 0) return;
  ns_per_saved_byte_[coded_++ % ns_per_saved_byte_.size()] =
      static_cast<double>(time.count()) / static_cast<double>(saved_bytes);
}

bool CompressionTuner::pays(const WireTimes& wire) const {
  if (coded_ == 0) return false;
  const auto end =
      ns_per_saved_byte_.begin() + static_cast<ptrdiff_t>(std::min(coded_, ns_per_saved_byte_.size()));
  return *std::min_element(ns_per_saved_byte_.begin(), end) < wire.ns_per_byte();
}

}  // namespace troupe::parallel
