// Do the parts of a graph overlap? A part is what gradients that enter at one send node, or at the roots of a
// pass, run through on one worker. Where no two parts have a node in common, every gradient message can be a
// pass of its own; otherwise a node would run once per message, and a message would leave it each time.
#pragma once
#include <span>
#include <vector>

#include "core/graph/node.h"

namespace troupe::autograd {

/// The nodes of all parts so far: an ordinary leaf may belong to many, since its gradients are only added up;
/// a leaf with hooks, which must see the whole gradient, may not. Visits each node once for all parts.
/// Whoever adds a part keeps its nodes alive (else a part of new nodes may be taken to overlap, which costs
/// time only). Not synchronized.
class SharedSubgraphs {
 public:
  /// Another part, which begins at `edges`.
  void add(std::span<const Edge> edges);
  /// Another worker has found one.
  void note();
  /// Two parts overlap. Stays true.
  bool found() const { return found_; }
  /// Whether the part that begins at `edges` meets one that was added. It is not added itself.
  bool met_by(std::span<const Edge> edges) const;

 private:
  // Open addressing: nodes, and the number of the part that each was first seen in.
  class Seen {
   public:
    /// The number that `node` has; `part` if it had none.
    uint32_t insert(const Node* node, uint32_t part);
    bool contains(const Node* node) const { return !slots_.empty() && slots_[slot(node)].node; }
    void clear() { *this = {}; }

   private:
    struct Slot {
      const Node* node = nullptr;
      uint32_t part = 0;
    };
    size_t slot(const Node* node) const;
    std::vector<Slot> slots_;
    size_t used_ = 0;
  };

  Seen seen_;
  uint32_t parts_ = 0;
  bool found_ = false;
};

}  // namespace troupe::autograd
