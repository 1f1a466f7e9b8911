// A language model that answers several clients.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "actors/cell/task.h"
#include "autograd/distributed/optim/module_actor.h"
#include "llm/options_codec.h"
#include "llm/text_batch.h"
#include "parallel/mesh/actor_mesh.h"

namespace troupe::llm {

/// A rank of a served model: its parameters, and its part of the cache.
class ServedRank : public nn::ModuleActor<Decoder> {
 public:
  ServedRank(Mesh mesh, DecoderOptions options, CacheOptions cache);
  /// Logits of the step's tokens on rank 0; undefined on the others.
  Task<Tensor> step(TextStep step);
  static constexpr auto remote = methods<&ServedRank::step>;

 private:
  CacheOptions options_;
  std::unique_ptr<PagedCache> cache_;  // made with the first step: to() moves a model before
};

/// What a server is doing.
struct ServerReport {
  int64_t texts = 0, waiting = 0;  ///< that are written, and that have no pages yet
  int64_t pages = 0, free_pages = 0;
  int64_t steps = 0, tokens = 0;  ///< since it began
};

/// Takes texts from clients, runs them through the ranks in batches that they join and leave between steps,
/// and hands out their tokens. A text is a call of generate(): where that is cancelled, its deadline passes
/// or its caller is lost, the text is dropped, and its pages are free in the next step.
class ModelServer : public Actor {
 public:
  /// Makes a rank on each worker of the mesh.
  ModelServer(Mesh mesh, DecoderOptions options, BatchLimits limits);

  /// What a prompt goes on with. `text`: a number that no other text has, for more(). `invalid` as
  /// TextBatch::add().
  Task<std::vector<int64_t>> generate(uint64_t text, std::vector<int64_t> prompt, GenerateOptions options);
  /// Tokens of a text from number `from` on, as soon as there is one; none: it has ended.
  Task<std::vector<int64_t>> more(uint64_t text, int64_t from);
  /// The ranks' actors.
  std::vector<AnyRef> ranks();
  ServerReport report();
  /// Its own: steps as long as there are texts.
  Task<void> run();
  static constexpr auto remote = methods<&ModelServer::generate, &ModelServer::more, &ModelServer::ranks,
                                         &ModelServer::report, &ModelServer::run>;

 private:
  class Held;
  Future<void> next_token(int64_t number);
  void tell_readers(int64_t number);
  void fail_all(const Error& error);

  TextBatch batch_;
  parallel::ActorMesh<ServedRank> model_;
  std::map<uint64_t, int64_t> numbers_;                    // of texts, in the batch
  std::map<int64_t, std::vector<Promise<void>>> readers_;  // who waits for the next token of a text
  bool running_ = false;
  int64_t steps_ = 0, tokens_ = 0;
};

/// Types of actors that every cluster has.
internal::actors::TypeRegistry builtin_actors();

}  // namespace troupe::llm
