// Weights in the order in which products read them, kept from one call to the next.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "core/base/mutex.h"
#include "core/tensor/tensor.h"

namespace troupe::ops {

namespace on_cpu {
class PackedMatrix;
template <class T>
struct Matrix;
}  // namespace on_cpu

/// The parameters of linear layers, packed when a product first needs them and read by all that follow: for
/// inference, for the micro-batches of one step, for the steps of a recurrent layer. What it saves is most
/// where a product has few rows (docs/contributing/decisions.md).
///
///     ops::PackedWeights packed;
///     const ops::PackedWeights::Use use(packed);
///     while (...) model(x);  // on this thread
///
/// Holds float32 parameters (leaves that want gradients) and as much memory again for each order in which
/// they are read: one forward, one backward; half as much more on a matrix unit. Only products that are
/// faster for it read them: on Intel's processors those of few rows, and the matrix unit's. A parameter whose
/// version has changed is packed again. What writes to its elements through data() and does not call
/// bump_version() has to call clear(), or end the use. Does nothing where the processor has no AVX2.
///
/// Thread-safe: several threads may use one.
class PackedWeights {
 public:
  PackedWeights();
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  /// Products made on this thread use `weights` while one lives, unless an outer one is in use already. In a
  /// coroutine it goes along from thread to thread.
  class [[nodiscard]] Use {
   public:
    explicit Use(PackedWeights& weights);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    PackedWeights* before_;
  };

  /// What is kept now.
  size_t bytes() const;
  void clear();

  /// For kernels: where to keep B, whose elements are those of `b` as `matrix` says; null: nowhere. A
  /// parameter is taken in if it is the weight of a linear layer; others find what was.
  static std::shared_ptr<on_cpu::PackedMatrix> find(const Tensor& b, const on_cpu::Matrix<float>& matrix,
                                                    bool linear);

 private:
  struct Key {
    const Storage* storage;
    int64_t offset, rows, columns, ld;
    auto operator<=>(const Key&) const = default;
  };
  struct Weight {
    Ref<Storage> storage;
    uint32_t version;
    std::shared_ptr<on_cpu::PackedMatrix> plain, transposed;
  };
  mutable troupe::internal::Mutex mutex_;
  std::map<Key, Weight> weights_;
};

}  // namespace troupe::ops
