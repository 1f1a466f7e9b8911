// When is a distributed backward pass over? A pure state machine, on the worker that started the pass.
//
// Every gradient message has an id. Whoever has handled one (run its part of the graph, and sent what
// followed from it) reports that id to the originator, together with the ids of the messages that it sent
// meanwhile. The pass is over when every message that was announced has been reported and every report was
// announced. Reports may come in any order: until the report of a message is there, it counts as outstanding,
// so the set cannot become empty early. Against a tree of acknowledgements (Dijkstra and Scholten 1980) this
// saves the way back: a chain of n hops costs n messages of waiting and one report, not 2n.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/value/value.h"

namespace troupe::autograd {

/// Unique in the cluster: the sender's number and a count.
using GradMessageId = uint64_t;

struct SentGrad {
  GradMessageId id;
  WorkerId to;
};

/// Not synchronized.
class Termination {
 public:
  Termination() = default;  ///< over
  /// The originator's own first message.
  explicit Termination(SentGrad first) { announce(first); }
  /// `id` was handled, and led to `children`.
  void handled(GradMessageId id, const std::vector<SentGrad>& children);
  /// The first failure counts. What is under way is followed on.
  void fail(const Error& why);
  /// A worker is gone: fails the pass if a message to it is outstanding, or one from it, which may be lost.
  void lost(WorkerId worker, const Error& why);

  /// These messages may not have arrived: fails the pass if one of them is outstanding.
  void lost(const std::vector<GradMessageId>& messages, const Error& why);

  bool over() const { return failure_ || open_.empty(); }
  /// No message that is known of is under way, but for those that are lost. After a failure this tells when
  /// nobody works for the pass any more.
  bool drained() const { return under_way_ == 0; }
  const std::optional<Error>& failure() const { return failure_; }
  /// Workers with announced messages that are not reported.
  std::vector<WorkerId> outstanding() const;

 private:
  struct Message {
    WorkerId to = kNoWorker;
    bool announced = false, reported = false;
  };
  void announce(SentGrad sent);
  bool forget(GradMessageId id);
  std::unordered_map<GradMessageId, Message> open_;
  size_t under_way_ = 0;  // announced and not reported
  std::optional<Error> failure_;
};

}  // namespace troupe::autograd
