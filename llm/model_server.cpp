#include "llm/model_server.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "llm/generate.h"
#include "parallel/pipeline/module_stage.h"
#include "rref/here.h"

namespace troupe::llm {

ServedRank::ServedRank(Mesh mesh, DecoderOptions options, CacheOptions cache)
    : ModuleActor(mesh, options), options_(cache) {
  net.eval();
}

Task<Tensor> ServedRank::step(TextStep step) {
  const NoGradGuard no_grad;
  if (!cache_) cache_ = std::make_unique<PagedCache>(net, options_);
  for (const int64_t text : step.closed) cache_->close(text);
  const PassTokens tokens = tokens_of(step, *cache_, net.device());
  cache_->begin(step.texts);
  const auto running = net.next(tokens.ids, tokens.positions, tokens.last, cache_.get());
  const Tensor logits = co_await running;
  cache_->end();
  co_return net.ranks().size() <= 1 || net.ranks().rank() == 0 ? logits.to(cpu).to(float32) : Tensor();
}

// A text of a client, for as long as the call that wants it.
class ModelServer::Held {
 public:
  Held(ModelServer& server, uint64_t text, int64_t number) : server_(server), text_(text), number(number) {
    server_.numbers_[text] = number;
  }
  Held(const Held&) = delete;
  ~Held() {
    server_.batch_.drop(number);
    server_.numbers_.erase(text_);
    server_.tell_readers(number);
  }

 private:
  ModelServer& server_;
  uint64_t text_;

 public:
  const int64_t number;
};

ModelServer::ModelServer(Mesh mesh, DecoderOptions options, BatchLimits limits)
    : batch_(options.vocab_size, options.rotary ? 0 : options.max_position_embeddings, limits),
      model_(parallel::spawn<ServedRank>(here(), mesh, options, limits.cache)) {}

Task<std::vector<int64_t>> ModelServer::generate(uint64_t text, std::vector<int64_t> prompt,
                                                 GenerateOptions options) {
  if (numbers_.contains(text)) throw_invalid("[generate] there is a text of that number already");
  const Held held(*this, text, batch_.add(prompt, options));
  if (!std::exchange(running_, true)) self(this).template tell<&ModelServer::run>();
  while (!batch_.ended(held.number)) {
    const Future<void> token = next_token(held.number);
    co_await token;
  }
  co_return batch_.take(held.number);
}

Task<std::vector<int64_t>> ModelServer::more(uint64_t text, int64_t from) {
  while (true) {
    const auto at = numbers_.find(text);
    if (at == numbers_.end() || !batch_.knows(at->second)) co_return std::vector<int64_t>();
    const std::vector<int64_t> all = batch_.written(at->second);
    if (from < static_cast<int64_t>(all.size()))
      co_return std::vector<int64_t>(all.begin() + std::max<int64_t>(from, 0), all.end());
    if (batch_.ended(at->second)) co_return std::vector<int64_t>();
    const Future<void> token = next_token(at->second);
    co_await token;
  }
}

Task<void> ModelServer::run() {
  while (!batch_.idle()) {
    const std::vector<Future<Tensor>> answers = model_.call<&ServedRank::step>(batch_.plan());
    Tensor logits;
    std::optional<Error> failed;
    try {
      for (const Future<Tensor>& answer : answers)
        if (const Tensor t = co_await answer; t.defined()) logits = t;
    } catch (...) {
      failed = current_error();
    }
    if (failed) {
      fail_all(*failed);
      continue;
    }
    const std::vector<int64_t> got = batch_.finish(logits);
    ++steps_, tokens_ += static_cast<int64_t>(got.size());
    for (const int64_t number : got) tell_readers(number);
  }
  running_ = false;
}

Future<void> ModelServer::next_token(int64_t number) {
  Promise<void> promise;
  const Future<void> future = promise.future();
  readers_[number].push_back(std::move(promise));
  return future;
}

void ModelServer::tell_readers(int64_t number) {
  const auto at = readers_.find(number);
  if (at == readers_.end()) return;
  for (const Promise<void>& reader : std::exchange(at->second, {})) reader.set();
  readers_.erase(number);
}

void ModelServer::fail_all(const Error& error) {
  batch_.fail();
  for (auto& [number, all] : std::exchange(readers_, {}))
    for (const Promise<void>& reader : all) reader.fail(error);
}

internal::actors::TypeRegistry builtin_actors() { return hosting<ModelServer, ServedRank, parallel::ModuleStage<Decoder>>(); }

std::vector<AnyRef> ModelServer::ranks() { return {model_.actors().begin(), model_.actors().end()}; }

ServerReport ModelServer::report() {
  return {static_cast<int64_t>(batch_.size()),
          static_cast<int64_t>(batch_.waiting()),
          batch_.book().pages(),
          batch_.book().free_pages(),
          steps_,
          tokens_};
}

}  // namespace troupe::llm
