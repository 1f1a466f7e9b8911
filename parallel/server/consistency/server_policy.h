// Policies of parameters that several trainers change: who waits for whom.
#pragma once
#include <string>

#include "core/codec/codec.h"

namespace troupe::parallel {

/// How far trainers of one parameter may be apart. As text, in flags and reports: "bsp", "ssp(3)", "async",
/// "quorum(3)", "delayed", "local(8)", "local(8, 0.5, 1)"; "bsp or abort" says what a lost trainer means.
struct ServerPolicy {
  enum class Kind {
    bsp,      ///< a step closes when all have pushed: one update with the weighted mean of their gradients
    ssp,      ///< each push is an update; nobody is more than `bound` steps ahead of the last; ssp(0) is bsp
    async,    ///< each push is an update; nobody waits
    quorum,   ///< as bsp, but a step closes on the first `bound` pushes; those that come later are dropped
    delayed,  ///< as bsp, but a step computes on the values of one step before, so it need not wait for them
    local,    ///< as bsp, but each step is `bound` steps of the trainer on its own, and the differences count
  };
  Kind kind = Kind::bsp;
  int64_t bound = 0;           ///< ssp: s >= 0; quorum: k >= 1; local: H >= 1; else 0
  double slow_momentum = 0;    ///< local: of the averages, in [0, 1); SlowMo's beta
  double slow_rate = 1;        ///< local: how far to go towards the average, above 0; SlowMo's alpha
  bool abort_on_loss = false;  ///< a lost trainer's open step is done again, and does not close on the rest

  /// Whether pushes are held until their step closes.
  bool holds() const { return kind != Kind::async && !(kind == Kind::ssp && bound > 0); }
  /// Whether what trainers read and how they are summed depends on what they push alone, not on when.
  bool repeats() const { return holds() && kind != Kind::quorum; }
  std::string str() const;
  /// `invalid`, saying what was expected, for other texts and for numbers out of range.
  static ServerPolicy parse(const std::string& text);
  bool operator==(const ServerPolicy&) const = default;
};

}  // namespace troupe::parallel

namespace troupe {
template <>
struct Codec<parallel::ServerPolicy> {
  static std::string name() { return "policy"; }
  static Value to(const parallel::ServerPolicy& p) { return p.str(); }
  static parallel::ServerPolicy from(Value v) {
    return parallel::ServerPolicy::parse(internal::take<std::string>(v, &name));
  }
};
}  // namespace troupe
