// A recorded step of a computation, as reverse-mode differentiation walks it.
#pragma once
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/small_vector.h"
#include "core/memory/ref.h"
#include "core/tensor/tensor.h"

namespace troupe {

using Edges = SmallVector<Edge, 2>;

/// Turns the gradients of a step's results into the gradients of its inputs.
///
/// `next(i)` says where the gradient of input i goes. Nodes form an acyclic graph held from the results
/// towards the leaves. `sequence` grows with creation in one actor, or on one thread outside actors; the
/// engine runs later nodes first. A node's `apply` runs on one thread at a time: the engine of the pass that
/// reached it.
class Node : public RefCounted {
 public:
  Node();
  /// Gradients of the results (undefined: zero) to gradients of the inputs (undefined: none).
  /// Throws Error; `name()` should be in its text.
  virtual Tensors apply(Tensors&& grads) = 0;
  virtual std::string name() const = 0;
  /// More for a picture of the graph: shapes of inputs, attributes. May be empty.
  virtual std::string detail() const { return {}; }
  /// Where the local graph ends, or waits, the engine hands the gradients to its sink instead of calling
  /// apply().
  enum class End {
    none,   ///< an ordinary step
    leaf,   ///< Accumulate: the gradient of a leaf is complete
    exit,   ///< the gradients leave for another actor
    later,  ///< a WaitingRule: its gradients come later, from elsewhere
  };
  virtual End end() const { return End::none; }
  /// Among exits: those of higher turns leave first.
  virtual uint64_t turn() const { return 0; }
  /// Why the gradients of its results are less than a reader would take them for, so that neither hooks nor
  /// grad() may look at them; null: they are whole.
  virtual const char* partial() const { return nullptr; }
  /// `invalid` if apply() could not run: what it needs was released, or was changed in place. Asked of all
  /// nodes of a pass before any of them runs, so that such an error changes nothing.
  virtual void check_saved() const {}
  /// Frees what was saved for the backward pass. A second apply() then throws `invalid`.
  virtual void release_saved() {}

  std::span<const Edge> next() const { return next_; }
  void set_next(Edges next) { next_ = std::move(next); }
  /// Number of results, so of gradients that apply() takes.
  uint32_t num_inputs() const { return num_inputs_; }
  uint64_t sequence() const { return sequence_; }

  /// Hooks on the gradient of result i, run before apply(): the returned tensor replaces it if defined.
  using Hook = std::function<Tensor(const Tensor&)>;
  void add_hook(uint32_t result, Hook hook);
  bool has_hooks() const { return !hooks_.empty(); }
  void run_hooks(Tensors& grads) const;

 protected:
  /// Releases long chains without recursion: 100,000 nodes do not overflow the stack.
  void destroy() override;
  /// Older than all others.
  explicit Node(std::nullptr_t) : sequence_(0) {}
  uint32_t num_inputs_ = 1;

 private:
  Edges next_;
  uint64_t sequence_;
  std::vector<std::pair<uint32_t, Hook>> hooks_;
};

/// The leaf whose gradient arrives here: the engine's sink adds it to `.grad`, or to the gradients of a
/// distributed context.
class Accumulate final : public Node {
 public:
  explicit Accumulate(Ref<TensorImpl> leaf) : leaf_(std::move(leaf)) {}
  ~Accumulate() override;
  Tensors apply(Tensors&& grads) override;
  std::string name() const override { return "Accumulate"; }
  End end() const override { return End::leaf; }
  Tensor leaf() const { return Tensor(leaf_); }

 private:
  Ref<TensorImpl> leaf_;
};

/// Of a leaf of a floating dtype, whether it needs a gradient now or not: where its gradients go while it
/// does.
Edge accumulator_of(const Tensor& leaf);

/// A leaf of that shape, for the gradients that it has, without elements of its own.
Tensor leaf_without_elements(const Shape& shape, const TensorOptions& options);

/// The autograd side of a leaf.
struct AutogradMeta {
  bool requires_grad = false;
  Tensor grad;
  internal::Mutex mutex;              // guards accumulator
  Accumulate* accumulator = nullptr;  // not owned: the graph owns it
};

/// Whether operators record: the thread's grad mode. See NoGradGuard.
bool grad_enabled();

/// Sets the thread's grad mode for a scope.
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};

/// Nothing is recorded while one is alive on this thread.
class NoGradGuard : GradMode {
 public:
  NoGradGuard() : GradMode(false) {}
};

}  // namespace troupe
