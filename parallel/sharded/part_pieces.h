// A part of a model of which this member of a group has pieces: how it becomes whole, and uses of it.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/parameter_pieces.h"
#include "core/graph/node.h"
#include "parallel/sharded/cut_bucket.h"
#include "parallel/sharded/shard.h"
#include "parallel/tensor/meetings.h"

namespace troupe::parallel {

/// The uses of an actor's parts: their order, for gathers that begin early.
struct PartUses;
std::shared_ptr<PartUses> new_part_uses(Per gather, Per reduce);
/// What gradients of later uses are multiplied by before replicas sum them.
void set_share(PartUses& uses, double share);

/// In the actor's mailbox.
class PartPieces final : public optim::ParameterPieces, public std::enable_shared_from_this<PartPieces> {
 public:
  /// A parameter, and the members of the module that are it.
  struct Parameter {
    std::vector<std::string> names;  ///< in the actor's module
    std::vector<Tensor*> members;
    Tensor whole;  ///< until take()
    int64_t first = 0;
  };
  /// Of one dtype and device. `spares`: this member has the pieces of the one before it, too.
  PartPieces(const Group& group, std::string name, std::vector<Parameter> parameters,
             std::shared_ptr<PartUses> uses, bool spares);
  /// This is CutParameters::regroup().
  void regroup(const Group& group);

  /// A use of the part that has begun.
  struct Begun {
    tp::Meeting at;
    uint32_t version;         ///< of the elements
    bool for_step;            ///< what comes is whole for all uses of the step
    Future<Tensor> elements;  ///< all, one parameter behind the other
  };
  Begun begin();
  /// This part has come: the gather of the part that followed it the last time begins, under what this one
  /// computes.
  void begin_next();
  /// What the function gives while the members are whole: `flat`, which has come for that use.
  Tensor run(const std::function<Tensor()>& f, Tensor flat, const Begun& use);
  /// All elements, one parameter behind the other.
  Future<Tensor> gather(const tp::Meeting& at) const;
  /// The same outside of calls of the part. No other one has that tag.
  Future<Tensor> gather_once(const std::string& tag) const;
  /// Of whole parameters; undefined ones: none.
  Future<Tensor> scatter(Tensors gradients, const tp::Meeting& at) const;
  /// The same outside of passes over single uses.
  Future<Tensor> scatter(Tensors gradients, const CollectiveOptions& options) const;
  /// Gradients of the pieces, in the order of the parameters, and behind them those of the spares.
  Tensors unpack(const Tensor& came) const;
  /// The leaves that those are of.
  Tensors leaves() const;
  /// Counts what has written the elements.
  uint32_t version() const { return elements_.version(); }

  const Group& group() const { return group_; }
  const std::vector<ObjectId>& members() const override { return internal::collective::ids_of(group_); }
  const std::string& name() const { return name_; }
  DType dtype() const { return elements_.dtype(); }
  Device device() const { return elements_.device(); }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  Edges edges() const;
  /// The members are whole, with gradients that go there, for as long as that is held.
  std::shared_ptr<void> show_wholes(const Tensor& flat, const Ref<Node>& gradients) const;
  /// With Per::step: leaves that have the gradients of the whole parameters, for who reduces them.
  const Tensors& proxies() const { return proxies_; }
  /// A parameter in gathered elements.
  Tensor whole_in(const Tensor& flat, size_t i) const;
  /// The pieces get the elements of these.
  void take(const Tensors& wholes);

  const std::vector<Piece>& pieces() const override { return pieces_; }
  const std::vector<Piece>& spares() const override { return spares_; }
  bool whole_gradients() const override { return false; }
  Future<void> gather() override {  // the next use does
    forget_gathered();
    return Future<void>::ready({});
  }
  void give_up(const Error&) override { forget_gathered(); }
  void written() override;
  const char* word() const override { return "Shard::all"; }

 private:
  Begun begin_now();
  static std::vector<Piece> pieces_of(const Tensor& elements, const std::vector<BucketCuts::Part>& parts,
                                      std::vector<Piece> none);
  Future<Tensor> scatter_in(const Group& group, Tensors gradients, const CollectiveOptions& options) const;
  void show_pieces() const;
  Future<Tensor> gather_for_step(tp::Meetings& meetings);
  void forget_gathered();
  Group group_;
  const std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<Shape> shapes_;
  CutBucket cut_;
  Tensor elements_;        // this member's
  Tensor spare_elements_;  // of the member before it; undefined: none
  std::vector<Piece> pieces_, spares_;
  Tensors proxies_;
  uint64_t steps_ = 0;  // that have changed the elements
  const std::shared_ptr<PartUses> uses_;
};

}  // namespace troupe::parallel
