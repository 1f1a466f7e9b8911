// A recurrent model whose embedding and decoder live on other workers: a context per batch, and the loss
// falls.
#include <catch2/catch.hpp>

#include "troupe/troupe.h"

using namespace troupe;

namespace {

constexpr int64_t kSymbols = 8, kWidth = 6, kHidden = 12, kTime = 5, kBatch = 4;

struct Embedding : nn::ModuleActor<nn::Embedding> {
  Embedding() : ModuleActor(kSymbols, kWidth) {}
  Tensor forward(Tensor ids) { return net(ids); }  // [time, batch] -> [time, batch, width]
  static constexpr auto remote = methods<&Embedding::forward>;
};

struct Decoder : nn::ModuleActor<nn::Linear> {
  Decoder() : ModuleActor(kHidden, kSymbols) {}
  Tensor forward(Tensor h) { return net(h); }  // [time * batch, hidden] -> [time * batch, symbols]
  static constexpr auto remote = methods<&Decoder::forward>;
};

// A walk in steps of 3 over the symbols, from a start for each column, and the symbols that follow.
std::pair<Tensor, Tensor> batch_of(int64_t number) {
  std::vector<int64_t> ids, next;
  for (int64_t t = 0; t < kTime; ++t)
    for (int64_t b = 0; b < kBatch; ++b) {
      ids.push_back((number + 2 * b + 3 * t) % kSymbols);
      next.push_back((ids.back() + 3) % kSymbols);
    }
  return {tensor(ids).reshape({kTime, kBatch}), tensor(next).reshape({kTime * kBatch})};
}

}  // namespace

TEST_CASE("a recurrent model with embedding and decoder on other workers learns, with a context per batch") {
  auto cluster = Cluster::in_process(3, hosting<Embedding, Decoder>());
  auto embedding = cluster->spawn<Embedding>("w1");
  auto decoder = cluster->spawn<Decoder>("w2");
  nn::LSTM lstm(kWidth, kHidden);
  optim::SGD local(lstm.parameters(), {.lr = 0.5, .momentum = 0.9});
  optim::Distributed<optim::SGD> remote({embedding, decoder}, {.lr = 0.5, .momentum = 0.9});
  double first = 0, last = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const auto [ids, next] = batch_of(step);
    autograd::Context context(*cluster);
    const Tensor hidden = lstm.run(embedding.call<&Embedding::forward>(ids).get()).output;
    const Tensor scores =
        decoder.call<&Decoder::forward>(ops::reshape(hidden, {kTime * kBatch, kHidden})).get();
    const Tensor loss = cross_entropy(scores, next);
    context.backward(loss);
    remote.step(context);
    Tensors grads;
    for (const Tensor& p : local.params()) grads.push_back(context.grad(p));
    local.step(grads);
    (step ? last : first) = loss.item();
  }
  CHECK(first > 1.5);
  CHECK(last < 0.5);
  for (const Tensor& p : lstm.parameters()) CHECK_FALSE(p.grad().defined());
}
