// An actor's part of a model of which other actors have the rest, or copies.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/copies.h"
#include "autograd/distributed/optim/parameter_pieces.h"
#include "core/base/mutex.h"
#include "core/value/value.h"

namespace troupe {
class Actor;
}

namespace troupe::optim {

/// Whoever cuts parameters says so here; optimizers, norms, checkpoints and reports read it. A parameter that
/// nobody has said anything of is a copy on all ranks of the groups that the actor is in, with one gradient,
/// and norms count that of rank 0. In the actor's mailbox, but for be_rank().
class ModelPart {
 public:
  using Members = std::vector<ObjectId>;  // of a group
  using AllPieces = std::vector<std::shared_ptr<ParameterPieces>>;

  /// What the actor has whose constructor or method runs; nullptr outside of actors.
  static ModelPart* here();
  /// In an actor's method: of its parameters that others update, too.
  static AllPieces pieces_here() { return here()->pieces(); }

  /// Distributed optimizers update these, while the object lives. `invalid` if old versions of parameters are
  /// kept.
  void add(const std::shared_ptr<ParameterPieces>& pieces);
  /// All that are alive.
  AllPieces pieces() const;
  /// `invalid` if pieces of the parameters are there.
  void keep_old_versions();
  bool keeps_old_versions() const { return keeps_old_versions_; }
  /// Called behind each step that a distributed optimizer makes here.
  void after_steps(void (*f)(Actor&)) { after_step_ = f; }
  void stepped(Actor& actor) const {
    if (on_step_) on_step_(actor);
    changed(actor);
  }
  /// Called behind those, too, and before that.
  void on_steps(void (*f)(Actor&)) { on_step_ = f; }
  /// What belongs to a step that is made, and changes parameters, is done.
  void changed(Actor& actor) const {
    if (after_step_) after_step_(actor);
  }

  /// Whether steps are behind points that a driver can go back to.
  bool has_points() const { return after_step_ != nullptr; }
  /// What this actor has of the pieces of the member before it is not of now: only its own was loaded.
  void set_stale_spares(bool stale) { stale_spares_ = stale; }
  /// False where it has none.
  bool has_stale_spares() const;
  bool updates_spares() const { return !stale_spares_; }

  /// How a tensor of the actor, if there is one, is a piece of a parameter: "Shard::all", or null.
  static const char* piece_word(const Tensor& tensor);

  /// The parameter is cut over ranks, or this rank's alone: it counts in norms wherever it is.
  void cut(const Tensor& parameter) { cut_.push_back(parameter); }
  /// The actor has a piece in the place of a parameter, which is cut if that was.
  void replace(const Tensor& parameter, const Tensor& piece);
  /// The actor is that rank of the group of that number. From any thread: conversions of passes say so, too.
  void be_rank(size_t rank, uint64_t group, const Members& members);
  /// The actor has become one of replicas, or is none any more. What replicas do among them says nothing of
  /// copies, which they count once by themselves.
  void be_replica(Members replicas);
  /// Other actors have the same parameters with the same gradients, and count them; in the place of those
  /// that were left out for the same reason.
  void leave_out_of_norms(const std::string& reason, Tensors parameters);

  /// Whether norms leave out the gradient of a parameter, or of a piece of one.
  bool is_left_out(const Tensor& updated) const;
  /// Takes what other ranks count out of `counted`; what is to be compared.
  std::vector<CopySizes> count_once(const Tensors& parameters, const std::vector<std::string>& names,
                                    Sizes& counted) const;

 private:
  struct RankIn {
    uint64_t group;
    Members members;
    size_t rank;
  };
  enum class Lies { own, piece, copy };
  Lies lies(const Tensor& updated, const RankIn& in, const AllPieces& all) const;
  bool is_cut(const Tensor& parameter) const;

  std::vector<std::weak_ptr<ParameterPieces>> pieces_;
  bool keeps_old_versions_ = false;
  bool stale_spares_ = false;
  void (*after_step_)(Actor&) = nullptr;
  void (*on_step_)(Actor&) = nullptr;
  Tensors cut_;
  mutable internal::Mutex mutex_;
  std::vector<RankIn> groups_ TROUPE_GUARDED_BY(mutex_);
  Members replicas_;
  std::map<std::string, Tensors> left_out_;  // by reason
};

/// In an actor's method that has given its parameters values: tells the pieces that are alive.
void parameters_written();

}  // namespace troupe::optim
