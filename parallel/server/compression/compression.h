// Compression of what travels between a trainer and its servers, each way by itself.
#pragma once
#include <string>

#include "core/codec/codec.h"

namespace troupe::parallel {

/// How tensors travel one way. As text: "none", "fp16", "bf16", "topk(0.01)", "1bit"; "fp16 always" does not
/// switch itself off where encoding costs more than it saves
/// (parallel/server/compression/compression_tuner.h).
struct Compression {
  enum class Kind {
    none,
    fp16,    ///< 16 bits for each element, IEEE 754 binary16; up to 65504
    bf16,    ///< 16 bits for each element, with float's range
    topk,    ///< the `fraction` of the elements that are largest in size; the rest waits for its turn
    onebit,  ///< the signs, and the mean of all elements of each sign; what that is off waits for its turn
  };
  Kind kind = Kind::none;
  double fraction = 0;  ///< topk: in (0, 1]; else 0
  bool always = false;  ///< whether or not it pays: the same bits in every run

  bool on() const { return kind != Kind::none; }
  /// Leaves out what is made good later (error feedback), so it is for gradients and not for values.
  bool keeps_residual() const { return kind == Kind::topk || kind == Kind::onebit; }
  std::string str() const;
  /// `invalid`, saying what was expected, for other texts and for fractions out of range.
  static Compression parse(const std::string& text);
  bool operator==(const Compression&) const = default;
};

/// `invalid` for a compression that cannot be used for pulls, which bring whole values. `what` starts the
/// text: "[server]".
void check_pulls(const Compression& compression, const std::string& what);

/// Nanoseconds that a server has spent on a question of somebody who wants to know: who says how the answer
/// is to be compressed, or sends what was packed.
struct Spent {
  int64_t held = 0;  ///< from its beginning to its answer, waiting included
  int64_t packing = 0, unpacking = 0;
  bool operator==(const Spent&) const = default;
};
/// Of several servers: what they held at the same time, and packed one after the other.
Spent together(const Spent& a, const Spent& b);

}  // namespace troupe::parallel

namespace troupe {
template <>
struct Codec<parallel::Compression> {
  static std::string name() { return "compression"; }
  static Value to(const parallel::Compression& c) { return c.str(); }
  static parallel::Compression from(Value v) {
    return parallel::Compression::parse(internal::take<std::string>(v, name()));
  }
};
/// Nothing, where nobody wanted to know.
template <>
struct Codec<parallel::Spent> {
  using Times = std::tuple<int64_t, int64_t, int64_t>;
  static std::string name() { return "times"; }
  static Value to(const parallel::Spent& s) {
    return s == parallel::Spent() ? Value() : Codec<Times>::to({s.held, s.packing, s.unpacking});
  }
  static parallel::Spent from(Value v) {
    if (v.is_null()) return {};
    const auto [held, packing, unpacking] = Codec<Times>::from(std::move(v));
    return {held, packing, unpacking};
  }
};
}  // namespace troupe
