// Passes whose gradients go where their caller says: over what is known at once, or over a region that grows.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "autograd/run_options.h"
#include "autograd/sink.h"
#include "core/graph/node.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::autograd {

struct LeftOut;

/// Runs the part of the graph that is reachable from `roots`; gradient grads[i] enters at roots[i]
/// (undefined: none; several roots may share a node).
///
/// Leaves are served as soon as their gradient is complete; other ready nodes run in descending `sequence`
/// order, ties in the order of discovery from the roots. Gradients of one result are summed in the order in
/// which they arrive, so the same graph gives the same bits. A node that no gradient reaches is passed over.
/// Runs on the calling thread and may be called again from inside a node or a hook. Throws `invalid` on a
/// gradient of the wrong shape or dtype at a leaf, and whatever nodes, hooks and the sink throw; leaves that
/// were served before keep what they got. `invalid`, before anything has run, for a graph with a step that
/// waits.
void run(const std::vector<Edge>& roots, Tensors grads, Sink& sink,
         troupe::autograd::RunOptions options = {});

/// A pass whose roots become known, and get their gradients, over time: first all are expected, then each is
/// supplied once. A node runs when all gradients that can reach it from the expected roots have come. Holds
/// the graph. Not synchronized. It may wait: what a step of which Sink::later() hears gives is brought by
/// resume().
///
/// A selecting region runs only what leads to its inputs, to steps that wait, and to exits of which want()
/// says so once all roots are expected; leaves get nothing. Then only the roots that want() and wanted() gave
/// are supplied.
class Region {
 public:
  static constexpr uint64_t kFirst = ~uint64_t{0};  ///< without a turn: waits for nobody, nor anybody for it

  explicit Region(troupe::autograd::RunOptions options);
  /// Selecting; `inputs` may be none. `left_out`: of the steps that it ran, what led to nothing wanted.
  Region(troupe::autograd::RunOptions options, const std::vector<Edge>& inputs,
         std::shared_ptr<std::vector<LeftOut>> left_out = {});
  Region(Region&&) noexcept;
  ~Region();
  /// Gradients will come for `roots`. Returns the nodes, newly reached, at which gradients leave the local
  /// graph.
  std::vector<Node*> expect(const std::vector<Edge>& roots, uint64_t turn = kFirst);
  /// They have come: runs what waits for nothing more. `sink` is used in this call only; it hears of every
  /// exit, also of those that no gradient reaches (then its gradients are empty). Throws as run() does; the
  /// region is of no use afterwards.
  ///
  /// Roots run in falling order of `turn`, which expect() was given, whichever come first: so sums have the
  /// same bits each time. A root needs a higher turn than the roots that it was computed from. A region with
  /// steps that wait runs roots as they come.
  void supply(const std::vector<Edge>& roots, Tensors grads, Sink& sink, uint64_t turn = kFirst);
  /// The gradients of the inputs of the step of which Sink::later() heard: runs what waits for nothing more,
  /// as supply() does.
  void resume(uint32_t ticket, Tensors out, Sink& sink);
  /// All that were expected have been supplied, and all that waited was resumed.
  bool done() const;
  /// Some step that waits lies behind the roots.
  bool has_waiting_steps() const;
  std::vector<const Node*> waiting_steps();
  /// Everything that will run still has what it saved. Throws.
  void check();
  /// Whether something that is wanted lies at `root`, which was expected, or beyond.
  bool leads_on(const Edge& root);

  /// Of a selecting region: the nodes of roots that lead to an input or to a step that waits.
  std::vector<Node*> wanted();
  /// Something that is wanted lies beyond `exit`, which expect() gave. Returns the nodes of roots that are
  /// newly found to lead there. `invalid` if a step on the way has been freed, or for an unknown exit.
  std::vector<Node*> want(Node* exit);
  /// The gradients of the inputs; undefined: none came.
  Tensors captured() const;
  /// Those that have come since the last time, by the number of the input. They are not kept.
  std::vector<std::pair<size_t, Tensor>> take_captured();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The edges that a pass from `roots` starts at; `invalid` for a root that needs no gradient and for no
/// roots, the text starting with [part].
std::vector<Edge> root_edges(const char* part, const Tensors& roots);
/// Edges of tensors whose gradients somebody wants to see.
std::vector<Edge> input_edges(const char* part, const Tensors& inputs);
/// What enters there: `grads` (one per root, or none), or 1 for a root of one element; checked.
Tensors root_grads(const char* part, const Tensors& roots, Tensors grads, bool keep_history);

}  // namespace troupe::internal::autograd
