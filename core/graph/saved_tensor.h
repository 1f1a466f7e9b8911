// What a step keeps for its backward pass: a tensor as it was, or the promise of a store to make it again.
#pragma once
#include <cstdint>
#include <memory>

#include "core/memory/ref.h"
#include "core/tensor/tensor.h"

namespace troupe {

/// Holds tensors in place of the steps that are recorded while it is the thread's store (see StoreScope).
/// autograd::checkpoint() is one: it keeps none of them, and makes them again when the first is asked for.
class TensorStore : public RefCounted {
 public:
  static constexpr uint32_t kNot = ~0u;
  /// Takes over a tensor, without its history; kNot if the step is to keep it itself.
  virtual uint32_t put(const Tensor& t) = 0;
  /// The tensor with that number, without history. Throws what making it again throws.
  virtual Tensor get(uint32_t number) = 0;
  /// Nobody asks for that number again.
  virtual void drop(uint32_t number) = 0;
  /// A leaf that needs a gradient is an input of a step.
  virtual void saw_leaf(const Tensor& leaf) = 0;
  /// What has to be as it was while a function that was recorded here runs again, for as long as it is held.
  virtual std::shared_ptr<void> run_again() { return nullptr; }

  /// The thread's; null: none.
  static TensorStore* current();
};

/// Sets the thread's store for a scope; null: none.
class StoreScope {
 public:
  explicit StoreScope(TensorStore* store);
  ~StoreScope();
  StoreScope(const StoreScope&) = delete;
  StoreScope& operator=(const StoreScope&) = delete;

 private:
  TensorStore* before_;
};

/// One saved tensor. A value; undefined unless made from a tensor.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& t);

  bool defined() const { return tensor_.defined() || store_; }
  /// Whether the tensor is kept as it was: then it may have been changed since.
  bool kept() const { return tensor_.defined(); }
  /// The tensor; if it is not kept(), made again by its store and without history.
  Tensor get() const { return store_ ? store_->get(number_) : elements_of_then(); }
  /// Whether somebody wrote to a kept tensor in place since. A leaf that was given other elements
  /// (core/graph/copy_on_write.h) is kept with those of then.
  bool changed() const { return kept() && storage()->version() != version_; }
  /// "was changed in place by add_ afterwards: version 2, expected 1. ...", after the tensor's name in a
  /// sentence.
  std::string complaint() const;
  /// Holds the tensor without its history if it is `base` or a view of it: see SavesTensors.
  void detach_from(const TensorImpl& base);
  void clear();

 private:
  const Ref<Storage>& storage() const { return leaf_storage_ ? leaf_storage_ : tensor_.storage(); }
  Tensor elements_of_then() const;

  Tensor tensor_;
  Ref<Storage> leaf_storage_;  // of a leaf that needs a gradient, when it was saved
  Ref<TensorStore> store_;
  uint32_t version_ = 0, number_ = 0;
  DType leaf_dtype_ = DType::float32;  // of leaf_storage_
};

/// A recorded step that keeps tensors.
class SavesTensors {
 public:
  /// `base` was written in place and gets a history that leads to this step: what is saved of it, or of its
  /// views, is held without history, so that the step does not own itself. (A pass finds that it was
  /// changed.)
  virtual void detach_saved(const TensorImpl& base) = 0;

 protected:
  ~SavesTensors() = default;
};

}  // namespace troupe
