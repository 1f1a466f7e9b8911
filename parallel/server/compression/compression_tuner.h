// Whether compression pays: the time of encoding and decoding against the time that the bytes it saves would
// take.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/clock.h"

namespace troupe::parallel {

/// How long bytes take on the way of one trainer to its servers and back, as measured. Pure. Of the last
/// messages, the fastest one counts: others waited for something else.
class WireTimes {
 public:
  /// A message that went and was answered, without the time that the other side spent on it. `encoded`: it
  /// was made smaller.
  void took(int64_t bytes, bool encoded, Duration time);
  /// Nanoseconds that a byte more costs. Two sizes give it without the time that any message takes. 0 if
  /// nothing has been measured.
  double ns_per_byte() const;

 private:
  struct Sample {
    double bytes = 0, ns = 0;
  };
  struct Window {
    std::array<Sample, 8> last{};
    size_t count = 0;
    void add(Sample sample) { last[count++ % last.size()] = sample; }
    Sample fastest() const;  // per byte
  };
  Window plain_, encoded_;
};

/// Decides, message by message, whether one way is encoded. Pure: it is told all times. To know both, it does
/// the other thing now and then, ever more rarely: at messages 2^k.
class CompressionTuner {
 public:
  /// `always`: every message is encoded, whatever it costs.
  explicit CompressionTuner(bool always = false) : always_(always) {}
  /// Whether to encode the next message.
  bool next(const WireTimes& wire);
  /// What encoding and decoding a message took, and by how many bytes it became smaller.
  void coded(int64_t saved_bytes, Duration time);
  /// Whether it is worth it, as far as is known.
  bool pays(const WireTimes& wire) const;

 private:
  static constexpr int64_t kFirst = 4;  // messages, of which each thing gets a half, before there is a choice
  bool always_;
  int64_t messages_ = 0;
  std::array<double, 8> ns_per_saved_byte_{};
  size_t coded_ = 0;
};

}  // namespace troupe::parallel
