// Clients of a served model.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "llm/model_server.h"
#include "rref/rref.h"

namespace troupe::llm {

/// How a model is served.
struct ServeOptions {
  std::optional<DType> dtype = {};  ///< of the weights; empty: as in config.json
  std::string adapters = {};        ///< folder of adapters that go with it
  BatchLimits limits = {};
};

/// Tokens of one text, as they come. Whoever drops it gives the text up.
class Generation {
 public:
  /// The next token; blocks until it is there. Empty: the text has ended. Throws the error that ended it.
  std::optional<int64_t> next();
  /// All tokens that next() has not given yet; blocks to the end.
  std::vector<int64_t> rest();

 private:
  friend class ServedModel;
  Generation(RRef<ModelServer> server, uint64_t text, Future<std::vector<int64_t>> whole)
      : server_(std::move(server)), text_(text), whole_(std::move(whole)) {}
  RRef<ModelServer> server_;
  uint64_t text_;
  Future<std::vector<int64_t>> whole_;
  std::vector<int64_t> got_;
  size_t given_ = 0;
  bool ended_ = false;
};

/// A reference to a served model. A value; it travels as its member does. In an actor's method call the
/// server itself: `co_await server.call<&llm::ModelServer::generate>(text, prompt, options)`.
class ServedModel {
 public:
  explicit ServedModel(RRef<ModelServer> served) : server(std::move(served)) {}
  /// What a prompt goes on with. `timeout`: for all of it; zero: none. Not in an actor.
  Generation generate(const Here& here, const std::vector<int64_t>& prompt,
                      const GenerateOptions& options = {}, Duration timeout = {}) const;
  /// All of it at once, as a future.
  Future<std::vector<int64_t>> write(const Here& here, const std::vector<int64_t>& prompt, const GenerateOptions& options = {},
                                     Duration timeout = {}) const;
  ServerReport report() const { return server.call<&ModelServer::report>().get(); }

  RRef<ModelServer> server;
};

/// Serves the model of a folder on the workers of a mesh, whose one dimension is "tp": each has a part of all
/// layers. The server is on the first of them. Blocks until the weights are there; `invalid` as
/// load_pretrained() and load_adapters().
///
///   auto model = llm::serve_model(cluster.here(), Mesh(cluster, {{"tp", 2}}, {"w1", "w2"}), "Llama-3.2-1B");
///   auto text = model.generate(cluster.here(), tokenizer.encode("Once upon a time"), {.max_new_tokens =
///   50}); while (auto token = text.next()) std::cout << tokenizer.decode({*token});
ServedModel serve_model(const Here& here, const Mesh& mesh, const std::string& folder,
                        const ServeOptions& options = {});

}  // namespace troupe::llm
