// Parameters of a replica of which it updates pieces: what of gradients is its own, and the way back to whole
// parameters.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/cell/task.h"
#include "autograd/distributed/optim/parameter_pieces.h"
#include "core/base/mutex.h"
#include "parallel/sharded/cut_bucket.h"
#include "parallel/sharded/shard.h"

namespace troupe::parallel {

/// In the actor's mailbox, but for scatter(), unpack() and gathered(), which are thread-safe.
class CutParameters final : public optim::ParameterPieces,
                            public std::enable_shared_from_this<CutParameters> {
 public:
  /// `buckets`: numbers of the parameters of each; those in none are not divided. `name`: begins the tags of
  /// what is gathered. `spares`: this member updates the pieces of the one before it, too. `invalid` if a
  /// parameter that is divided is not contiguous.
  CutParameters(const Group& group, const Tensors& parameters, std::vector<std::vector<size_t>> buckets,
                Shard shard, std::string name, std::optional<Duration> timeout, bool spares);
  /// While nothing is under way: other members have the pieces of others from now on, and this one keeps its
  /// own. `invalid` if it has another rank, or they are of another number.
  void regroup(const Group& group, std::string name);

  /// The sums of the gradients of bucket b, in the places that parameters have there, for whom they belong
  /// to.
  Future<Tensor> scatter(size_t b, Tensors gradients, const CollectiveOptions& options) const;
  /// What came of that: leaves, and their gradients.
  std::vector<std::pair<Tensor, Tensor>> unpack(size_t b, const Tensor& came) const;
  /// The last gather(): it fails if that did.
  Future<void> gathered() const;

  const std::vector<std::vector<size_t>>& buckets() const& { return buckets_; }
  std::vector<std::vector<size_t>> buckets() && { return buckets_; }
  /// By parameter; nothing in the place of one that is not divided.
  const std::vector<Piece>& pieces() const override { return pieces_; }
  const std::vector<Piece>& spares() const override { return spares_; }
  bool whole_gradients() const override { return shard_ == Shard::state; }
  Future<void> gather() override;
  void give_up(const Error& why) override;
  const std::vector<ObjectId>& members() const override { return internal::collective::ids_of(group_); }
  const char* word() const override { return parallel::word(shard_); }

 private:
  static Task<void> run(std::shared_ptr<CutParameters> self, std::string tag);
  std::string next_tag();
  Future<Tensor> begin(size_t b, const std::string& tag) const;
  Tensors wholes(size_t b) const;
  void find_pieces(size_t b, const std::vector<BucketCuts::Part>& parts, std::vector<Piece>& pieces) const;
  Group group_;
  const std::vector<std::vector<size_t>> buckets_;
  const Shard shard_;
  std::string name_;
  const std::optional<Duration> timeout_;
  std::vector<CutBucket> cuts_;  // by bucket
  std::vector<Piece> pieces_;    // by parameter
  std::vector<Piece> spares_;    // the same, of the member before
  uint64_t gathers_ = 0;
  mutable internal::Mutex mutex_;
  Future<void> gathered_ TROUPE_GUARDED_BY(mutex_) = Future<void>::ready({});
};

}  // namespace troupe::parallel
