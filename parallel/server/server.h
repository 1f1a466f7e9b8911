// Server: an actor that holds parameters for trainers that pull them, and push gradients.
#pragma once
#include <string>
#include <vector>

#include "parallel/server/compression/packed.h"
#include "parallel/server/server_base.h"

namespace troupe::parallel {

struct Pulled {
  VersionStamp stamp;
  Packed values;
  bool late = false;  ///< of push_pull(): as in Pushed
};

/// One block of parameters under one policy, with one optimizer. An actor like any other: a pull inside an
/// autograd::Context is recorded, and gradients run back to the parameters; push_context() takes them from
/// there. serve() makes as many as a model needs, and a Client speaks to all of them
/// (parallel/server/served_parameters.h).
///
/// Values that a trainer has read do not change under it: an update makes new ones where old ones are held.
class Server final : public ServerBase {
 public:
  /// Starts with copies of `start`. `invalid` on tensors that are not floating, and on options out of range.
  Server(Tensors start, ServerOptions options, ServerPair pair = {});

  /// The values, as soon as the policy lets the trainer read, with `at_least` that many updates in them.
  /// `disconnected`, naming the lost worker, if the step that it waits for was aborted; `invalid` if it is
  /// compressed and to be recorded, or compressed in a way that leaves something out.
  Task<Pulled> pull(TrainerId trainer, int64_t at_least, Compression how);
  /// For anybody, at any time: the values of that version or a later one.
  Task<Pulled> read(int64_t at_least);
  /// A gradient for each value (undefined: zeros), with the stamp of the pull that it was computed on. Under
  /// local(H): what the local steps took away, start - end. `invalid`, with nothing changed: other shapes or
  /// dtypes, elements that are not finite, and as unpack() and Consistency::push.
  Task<Pushed> push(TrainerId trainer, VersionStamp stamp, Packed gradients, double weight);
  /// The same with the gradients that the values have which the trainer has pulled in the context of this
  /// call, since its last push, times `factor`; of other trainers it takes nothing. `invalid` if it has
  /// pulled none there, unless the weight is 0.
  Task<Pushed> push_context(TrainerId trainer, VersionStamp stamp, double weight, double factor);
  /// Throws what push_context() would. `scaled`: of gradients that are not finite it throws nothing, but
  /// gives the largest element of each that counts.
  Task<std::vector<double>> check_push(TrainerId trainer, VersionStamp stamp, double weight, bool scaled);
  /// Of the gradients that push_context() would take, each trainer's by itself: gradients_of()
  /// (parallel/server/served_gradients.h).
  std::vector<double> gradient_sizes(bool largest);
  void scale_gradients(double factor, bool wide);
  /// push(), then pull(): one message each way.
  Task<Pulled> push_pull(TrainerId trainer, VersionStamp stamp, Packed gradients, double weight,
                         Compression how);
  Tensors parameters() override { return values_; }

  static constexpr auto remote =
      methods<&Server::join, &Server::leave, &Server::set_policy, &Server::set_options, &Server::report,
              &Server::pull, &Server::read, &Server::push, &Server::push_context, &Server::check_push,
              &Server::push_pull, &Server::gradient_sizes, &Server::scale_gradients>;

 private:
  ValueMap saved() const override;
  void load(ValueMap saved) override;
  void update(optim::Optimizer& optimizer, const std::vector<Contribution>& contributions) override;
  Tensors pulled(const Consistency::Reading& reading) const;
  void gone(const std::string& trainer) override { recorded_.erase(trainer); }
  const Tensors& leaves_of(const std::string& trainer);
  // With what became of a push before it, if there was one.
  Task<Pulled> pulling(TrainerId trainer, int64_t at_least, Compression how, Pushed pushed);
  Pushed take_packed(const TrainerId& trainer, const VersionStamp& stamp, Packed packed, double weight);
  // What the trainer has pulled in this context has received these.
  Tensors recorded_gradients(const TrainerId& trainer, double weight) const;
  void check_tensors(const TrainerId& trainer, const Tensors& gradients, bool counts) const;
  Pushed take_gradients(const TrainerId& trainer, const VersionStamp& stamp, Tensors gradients,
                        double weight);

  Tensors values_;    // leaves
  Tensors previous_;  // under delayed: before the last update
  struct Recorded {
    uint64_t context = 0;
    Tensors leaves;  // without elements: they have the gradients of the values that it pulled
  };
  std::map<std::string, Recorded> recorded_;  // by trainer: of its last context
};

}  // namespace troupe::parallel

namespace troupe::internal::parallel {

/// What a server says of such gradients, one for each value: `invalid` for other shapes or dtypes, and for
/// elements that are not finite. A client of several servers asks before it sends them: what one of them
/// would refuse would be a step of the others.
void check_gradients(const std::string& trainer, const Tensors& gradients,
                     const std::vector<troupe::parallel::Whole>& values, bool counts);

}  // namespace troupe::internal::parallel
