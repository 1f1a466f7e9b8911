// Compression of what travels between a trainer and its servers, each way by itself.
#pragma once
#include <string>

#include "core/codec/codec.h"

namespace troupe::parallel {

/// How tensors travel one way. As text: "none", "fp16", "bf16", "topk(0.01)", "1bit"; between replicas also
/// "powersgd(2)", and what register_compression() was given.
struct Compression {
  enum class Kind {
    none,
    fp16,    ///< 16 bits for each element, IEEE 754 binary16; up to 65504
    bf16,    ///< 16 bits for each element, with float's range
    topk,    ///< the `fraction` of the elements that are largest in size; the rest waits for its turn
    onebit,  ///< the signs, and the mean of all elements of each sign; what that is off waits for its turn
    own,     ///< a function that reduces gradients of replicas, by its name: "powersgd(2)"
  };
  Kind kind = Kind::none;
  double fraction = 0;    ///< topk: in (0, 1]; else 0
  std::string name = {};  ///< own: its text

  bool on() const { return kind != Kind::none; }
  /// Leaves out what is made good later (error feedback), so it is for gradients and not for values.
  bool keeps_residual() const { return kind == Kind::topk || kind == Kind::onebit; }
  std::string str() const;
  /// `invalid`, saying what was expected, for other texts and for fractions out of range.
  static Compression parse(const std::string& text);
  bool operator==(const Compression&) const = default;
};

}  // namespace troupe::parallel

namespace troupe {
namespace internal::parallel {

/// `invalid` for a compression that cannot be used for pulls, which bring whole values. `what` starts the
/// text: "[server]".
void check_pulls(const troupe::parallel::Compression& compression, const std::string& what);
/// `invalid` for one that is no form of a tensor, but a function that members of a group run.
void check_pushes(const troupe::parallel::Compression& compression, const std::string& what);

}  // namespace internal::parallel

template <>
struct Codec<parallel::Compression> {
  static std::string name() { return "compression"; }
  static Value to(const parallel::Compression& c) { return c.str(); }
  static parallel::Compression from(Value v) {
    return parallel::Compression::parse(internal::take<std::string>(v, &name));
  }
};
}  // namespace troupe
