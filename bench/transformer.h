// The character transformer of the benchmarks, as the peer has it: pre-norm blocks, causal attention, GELU.
#pragma once
#include <cmath>
#include <vector>

#include "troupe/troupe.h"

namespace troupe::bench {

/// Weights [out, in] and bias of a linear layer, with the initial values of nn::Linear.
struct Affine {
  Tensor weight, bias;
  Affine(int64_t in, int64_t out, Generator& g) {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    for (Tensor* t : {&weight, &bias}) {
      *t = t == &weight ? Tensor::empty({out, in}) : Tensor::empty({out});
      nn::uniform_(*t, -bound, bound, g);
      t->set_requires_grad();
    }
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }
};

struct Norm {
  Tensor weight, bias;
  explicit Norm(int64_t width) : weight(Tensor::full({width}, 1)), bias(Tensor::zeros({width})) {
    weight.set_requires_grad();
    bias.set_requires_grad();
  }
  Tensor operator()(const Tensor& x) const { return layer_norm(x, weight, bias); }
};

struct Block {
  int64_t heads;
  Norm n1, n2;
  Affine qkv, proj, up, down;
  Block(int64_t d, int64_t h, Generator& g)
      : heads(h), n1(d), n2(d), qkv(d, 3 * d, g), proj(d, d, g), up(d, 4 * d, g), down(4 * d, d, g) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor y = x + proj(self_attention(qkv(n1(x)), heads, true));
    return y + down(gelu(up(n2(y))));
  }
};

class CharTransformer {
 public:
  CharTransformer(int64_t vocabulary, int64_t width, int64_t layers, int64_t heads, int64_t context,
                  Generator& g)
      : tokens_(randn({vocabulary, width}, g)),
        positions_(randn({context, width}, g)),
        norm_(width),
        head_(width, vocabulary, g) {
    tokens_.set_requires_grad();
    positions_.set_requires_grad();
    for (int64_t i = 0; i < layers; ++i) blocks_.emplace_back(width, heads, g);
  }

  /// ids [batch, time] with time <= context; scores [batch * time, vocabulary].
  Tensor operator()(const Tensor& ids) const {
    Tensor x = embedding(ids, tokens_) + positions_.slice(0, 0, ids.size(1));
    for (const Block& block : blocks_) x = block(x);
    const Tensor scores = head_(norm_(x));
    return scores.reshape({-1, scores.size(2)});
  }

  Tensors parameters() const {
    Tensors all{tokens_, positions_, norm_.weight, norm_.bias, head_.weight, head_.bias};
    for (const Block& b : blocks_) {
      for (const Norm* n : {&b.n1, &b.n2}) all.insert(all.end(), {n->weight, n->bias});
      for (const Affine* a : {&b.qkv, &b.proj, &b.up, &b.down}) all.insert(all.end(), {a->weight, a->bias});
    }
    return all;
  }

 private:
  Tensor tokens_, positions_;
  std::vector<Block> blocks_;
  Norm norm_;
  Affine head_;
};

}  // namespace troupe::bench
