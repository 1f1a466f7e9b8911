// Parameters in servers, as the trainers see them: which server has what, and a client that asks all of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/step_all.h"
#include "parallel/server/client_options.h"
#include "parallel/server/server_options.h"
#include "rref/here.h"
#include "rref/rref.h"

namespace troupe::parallel {

class Server;

/// Elements [begin, end) of a tensor, in row-major order.
struct Extent {
  int64_t tensor = 0, begin = 0, end = 0;
  bool operator==(const Extent&) const = default;
};

/// All elements in a row, cut into as few blocks of equal size as there can be: a multiple of `servers` (or
/// one for each element), of at most `block_bytes`. Pure.
std::vector<std::vector<Extent>> cut(const std::vector<int64_t>& numels, int64_t item_bytes, int64_t servers,
                                     int64_t block_bytes);

/// Parameters and their servers. A value: keep it, send it to trainers.
struct Served {
  std::vector<std::vector<int64_t>> shapes;  ///< of the parameters
  std::vector<RRef<Server>> servers;         ///< one for each block
  std::vector<std::vector<Extent>> extents;  ///< of each server
  int64_t dtype = 0;                         ///< of the parameters, as DType has it
  Compression pull, push;                    ///< of what trainers read, and of what they send
  std::vector<RRef<Server>> backups = {};    ///< one for each server; none
};

}  // namespace troupe::parallel

extern template struct troupe::internal::StructCodec<troupe::parallel::Served>;

namespace troupe::parallel {

struct BlockOptions {
  int64_t bytes = 4 << 20;  ///< at most in one block: while one is updated, others are on their way
};

/// Puts parameters into servers on these workers, in turn. `invalid` on no places, tensors that differ in
/// dtype, pulls that are compressed as gradients are, a backup on a worker that has servers, and as Server;
/// the last shows when the servers are used. Each server copies its part of `start`, which may be a module's
/// parameters, when it is made. Servers are on the CPU: values arrive there, and what is pushed may be on any
/// device.
Served serve(const Here& here, const std::vector<Place>& where, const Tensors& start,
             const ServerOptions& options, const BlockOptions& blocks = {});

/// The values with at least `at_least` updates, for anybody: to evaluate, to save.
Future<Tensors> read(const Served& served, int64_t at_least = 0);
/// For all blocks; each changes at its next message.
Future<void> set_policy(const Served& served, const ServerPolicy& policy);
Future<void> set_options(const Served& served, const ValueMap& changed);
/// Of each block.
Future<std::vector<ServerReport>> report(const Served& served);

/// One trainer's way to served parameters; joins, and leaves at its end. Each block closes its own steps.
///
///   parallel::Client client(served);
///   for (auto [x, y] : loader) {
///     Tensors w = co_await client.pull();
///     co_await client.push(gradients(w, x, y), batch_size);
///   }
///
/// Inside an autograd::Context the values are recorded: model(w), backward, client.push_context(). For one
/// actor or thread; what is called next need not wait for what was called before.
///
/// Where pulls or pushes are compressed, gradients do not run back to the servers: they stay with the trainer
/// until push_context() packs them. What a compressed push leaves out is kept here, one tensor for each
/// parameter, and sent with later ones.
///
/// Where servers have backups (ServerOptions::backup), what it asks of a server that is lost is asked of the
/// backup again, and counts once. Gradients in a context that were on their way to a lost server are gone:
/// push_context() and passes then fail with `disconnected`, and the step is made again from its pull on.
class Client {
 public:
  explicit Client(Served served, ClientOptions options = {});
  ~Client();  ///< leaves, without waiting
  Client(Client&&) = default;
  Client& operator=(Client&&) = delete;

  /// The parameters, when the policy lets this trainer read, each block with `at_least` that many updates in
  /// it. Errors as Server::pull.
  Future<Tensors> pull(int64_t at_least = 0) const;
  /// A gradient for each parameter (undefined: zeros), computed on the values of the last pull. Errors as
  /// Server::push.
  Future<Pushed> push(const Tensors& gradients, double weight = 1) const;
  /// Both in one message each way and block: blocks come back while others are still being sent.
  Future<Tensors> push_pull(const Tensors& gradients, double weight = 1) const;
  /// The gradients that the values which this client has pulled in the current context, since its last push,
  /// have received there; none of those of other clients. Servers take the mean over trainers. `invalid`,
  /// with nothing changed, if none has come, or a pass that this worker has begun is under way, unless the
  /// weight is 0.
  Future<Pushed> push_context(double weight = 1) const;
  /// A push_context(weight) as part of a step that others make, too: optim::step_all(step, {optimizer,
  /// client.part()}). It pushes with weight 0 where a scaler's gradients are not finite. `invalid` where
  /// values travel compressed. This has to live until then.
  optim::StepPart part(double weight = 1) const;
  /// Under local(H): the parameters after H steps from those of the last pull, which must not have been
  /// changed in place.
  Future<Pushed> push_values(const Tensors& values, double weight = 1) const;
  /// The trainer has gone from all blocks.
  Future<void> leave();

  /// Of the last pull: how many updates are in its oldest block; the trainer's step; H under local(H), or 0.
  int64_t version() const;
  int64_t step() const;
  int64_t local_steps() const;
  const std::string& name() const&;
  std::string name() const&& { return name(); }

 private:
  struct State;
  State& state() const;  // `invalid` if this was moved from
  std::shared_ptr<State> state_;
};

}  // namespace troupe::parallel
