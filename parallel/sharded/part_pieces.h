// A part of a model of which this member of a group has pieces: how it becomes whole, and uses of it.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/parameter_pieces.h"
#include "core/graph/saved_tensor.h"
#include "parallel/sharded/cut_bucket.h"
#include "parallel/tensor/meetings.h"

namespace troupe::parallel {

/// The uses of an actor's parts: their order, for gathers that begin early.
struct PartUses;
std::shared_ptr<PartUses> new_part_uses();
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
  /// Of one dtype and device.
  PartPieces(const Group& group, std::string name, std::vector<Parameter> parameters,
             std::shared_ptr<PartUses> uses);

  /// What the function gives while the members are whole: `flat`, from a gather() at that meeting when the
  /// elements had that version.
  Tensor run(const std::function<Tensor()>& f, Tensor flat, const tp::Meeting& at, uint32_t version);
  /// All elements, one parameter behind the other.
  Future<Tensor> gather(const tp::Meeting& at) const;
  /// The same outside of calls of the part. No other one has that tag.
  Future<Tensor> gather_once(const std::string& tag) const;
  /// Of whole parameters; undefined ones: none.
  Future<Tensor> scatter(Tensors gradients, const tp::Meeting& at) const;
  /// Gradients of the pieces, in the order of the parameters.
  Tensors unpack(const Tensor& came) const;
  /// Of the elements: a step makes another one.
  uint32_t version() const { return elements_.version(); }

  const Group& group() const { return group_; }
  const std::string& name() const { return name_; }
  DType dtype() const { return elements_.dtype(); }
  Device device() const { return elements_.device(); }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  Edges edges() const;
  /// A parameter in gathered elements.
  Tensor whole_in(const Tensor& flat, size_t i) const;
  /// The pieces get the elements of these.
  void take(const Tensors& wholes);

  const std::vector<Piece>& pieces() const override { return pieces_; }
  bool whole_gradients() const override { return false; }
  Future<void> gather() override { return Future<void>::ready({}); }  // the next use does
  void give_up(const Error&) override {}
  const char* word() const override { return "Shard::all"; }

 private:
  void show_pieces() const;
  const Group group_;
  const std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<Shape> shapes_;
  CutBucket cut_;
  Tensor elements_;  // this member's
  std::vector<Piece> pieces_;
  const std::shared_ptr<PartUses> uses_;
};

}  // namespace troupe::parallel
