// Attention by a ring: keys and values go round, and meet the queries of one rank after the other.
#include <fmt/format.h>

#include <array>

#include "actors/worker/start_task.h"
#include "autograd/waiting_step.h"
#include "collective/group_number.h"
#include "core/graph/saved_tensor.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"
#include "parallel/context/attention.h"
#include "parallel/tensor/meetings.h"

namespace troupe::internal::cp {

using troupe::cp::Positions;
using troupe::tp::Meeting;
using troupe::tp::MeetingsOfWorker;

namespace {

// What a rank has of queries, keys and values, or of their gradients; and what it is told.
struct Ring {
  Meeting at;
  Sequence sequence;
  AttentionOptions options;
  size_t rank = 0;
  Shape shape = {};  // of the own part: [batch, heads, some of time, width]

  size_t ranks() const { return at.group.size(); }
  Shape shape_of(size_t r) const {
    Shape s = shape;
    s[2] = sequence.sizes()[r];
    return s;
  }
  // The rank whose keys and values are here, or at another rank, before hop i.
  size_t source(size_t i) const { return source_at(rank, i); }
  size_t source_at(size_t r, size_t i) const { return (r + ranks() - i % ranks()) % ranks(); }
  // What each rank sends to each in hop i, of so many tensors.
  std::vector<int64_t> sent(size_t i, size_t tensors) const {
    const size_t n = ranks();
    std::vector<int64_t> all(n * n, 0);
    for (size_t r = 0; r < n; ++r)
      all[r * n + (r + 1) % n] = static_cast<int64_t>(tensors) * shape_of(source_at(r, i)).numel();
    return all;
  }
};

// Hop i: to the next rank; from the one before comes as much of the rank whose turn it is.
Future<Tensors> hop(const Ring& ring, const Meeting& at, size_t i, const char* what, const Tensors& xs) {
  const NoGradGuard off;
  const Shape comes = ring.shape_of(ring.source(i + 1));
  const Tensor empty_one = empty({0}, xs[0].options());
  Tensors to(ring.ranks(), empty_one), flat;
  for (const Tensor& x : xs) flat.push_back(ops::reshape(ops::contiguous(x), {x.numel()}));
  to[(ring.rank + 1) % ring.ranks()] = ops::cat(flat, 0);
  at.count(static_cast<int64_t>(to[(ring.rank + 1) % ring.ranks()].nbytes()));
  const CollectiveOptions options{.tag = at.of(fmt::format("hop {}{}", i, what)).tag,
                                  .rows = ring.sent(i, xs.size())};
  const auto moving = at.group.all_to_all(std::move(to), options);
  const size_t from = (ring.rank + ring.ranks() - 1) % ring.ranks();
  const Future<Tensors> came = moving.then([from, comes, n = xs.size()](const Tensors& all) {
    const NoGradGuard guard;
    Tensors out;
    const int64_t each = comes.numel();
    for (size_t k = 0; k < n; ++k)
      out.push_back(ops::reshape(
          ops::slice(all[from], 0, static_cast<int64_t>(k) * each, static_cast<int64_t>(k + 1) * each),
          IntList(comes)));
    return out;
  });
  came.watch([moving](const Result<Tensors>& r) {
    if (!r.ok() && r.error().kind() == ErrorKind::cancelled) moving.cancel();
  });
  return came;
}

// Some of the own queries and of the keys of a rank that they see, and whether the mask cuts through them.
struct Meets {
  Positions queries, keys;  // within the tensors
  bool causal = false;
};

// The own keys come first, and reach all queries. The pieces of a rank are in order, so what a query sees
// of its own rank is what a mask gives, and of another one the first pieces; neighbours that see the same
// go together.
std::vector<Meets> meets(const Ring& ring, size_t source) {
  const auto &mine = ring.sequence.of(ring.rank), &theirs = ring.sequence.of(source);
  const int64_t all = ring.shape[2];
  if (source == ring.rank) return {{{0, all}, {0, all}, ring.options.causal}};
  std::vector<Meets> out;
  int64_t at = 0;
  for (const Positions& piece : mine) {
    int64_t seen = 0;
    for (const Positions& keys : theirs)
      if (!ring.options.causal || keys.from < piece.from) seen += keys.size;
    if (!out.empty() && out.back().keys.size == seen)
      out.back().queries.size += piece.size;
    else
      out.push_back({{at, piece.size}, {0, seen}});
    at += piece.size;
  }
  std::erase_if(out, [](const Meets& m) { return m.keys.size == 0; });
  return out;
}

Tensor cut(const Tensor& x, const Positions& p) { return ops::slice(x, 2, p.from, p.end()); }

ops::Attrs attributes(const Ring& ring, bool causal) {
  return {{"causal", causal}, {"scale", ring.options.scale.value_or(0.0)}};
}

// The mix of values so far, and the logarithms of the sums, of all own queries.
struct Mixed {
  Tensor mix, logs;
};

// Adds what the queries see of these keys: the sum is exp(a) + exp(b); the mixes are taken by their shares.
void attend(const Ring& ring, size_t source, const Tensor& q, const Tensors& kv, Mixed& so_far) {
  const NoGradGuard off;
  if (!q.size(2)) return;
  for (const Meets& m : meets(ring, source)) {
    const Tensor inputs[] = {cut(q, m.queries), cut(kv[0], m.keys), cut(kv[1], m.keys)};
    const Tensors out = ops::apply(ops::kAttention, inputs, attributes(ring, m.causal));
    const Tensor mix = ops::to(out[0], out[1].dtype()), &logs = out[1];
    if (!so_far.mix.defined()) {
      so_far = {mix, logs};
      continue;
    }
    const Tensor old_mix = cut(so_far.mix, m.queries), old_logs = cut(so_far.logs, m.queries);
    const Tensor top = ops::maximum(old_logs, logs);
    const Tensor sum =
        ops::add(top, ops::log(ops::add(ops::exp(ops::sub(old_logs, top)), ops::exp(ops::sub(logs, top)))));
    const auto share = [&](const Tensor& l) { return ops::unsqueeze(ops::exp(ops::sub(l, sum)), -1); };
    old_mix.copy_(ops::add(ops::mul(old_mix, share(old_logs)), ops::mul(mix, share(logs))));
    old_logs.copy_(sum);
  }
}

// What is kept for the backward pass.
struct Kept {
  SavedTensor q, k, v, mix, logs;
};

// Adds the gradients of some keys and values, and of the own queries.
void attend_back(const Ring& ring, size_t source, const Tensor& grad, const Kept& kept, const Tensors& kv,
                 Tensor& dq, Tensors& dkv) {
  const NoGradGuard off;
  const Tensor q = kept.q.get(), mix = kept.mix.get(), logs = kept.logs.get();
  if (!q.size(2)) return;
  for (const Meets& m : meets(ring, source)) {
    const Tensor own_logs = cut(logs, m.queries);
    const Tensor inputs[] = {
        cut(grad, m.queries), zeros_like(own_logs), cut(q, m.queries), cut(kv[0], m.keys),
        cut(kv[1], m.keys),   cut(mix, m.queries),  own_logs};
    const Tensors d = ops::apply(ops::kAttentionGrad, inputs, attributes(ring, m.causal));
    const auto add_to = [](const Tensor& sum, const Positions& p, const Tensor& x) {
      ops::add_(cut(sum, p), ops::to(x, sum.dtype()));
    };
    add_to(dq, m.queries, d[0]), add_to(dkv[0], m.keys, d[1]), add_to(dkv[1], m.keys, d[2]);
  }
}

// Gradients of keys and values go along with them, and one hop more, home.
Task<Tensors> back(Ring ring, std::shared_ptr<Kept> kept, Tensor grad, Meeting at) {
  const Tensor q = kept->q.get();
  const DType sums = compute_dtype(q.dtype());
  const auto zero = [&](size_t r) { return zeros(ring.shape_of(r), {sums, q.device()}); };
  Tensor dq = zero(ring.rank);
  Tensors kv{kept->k.get(), kept->v.get()}, dkv{zero(ring.rank), zero(ring.rank)};
  const size_t n = ring.ranks();
  for (size_t i = 0; i < n; ++i) {
    Future<Tensors> more;
    if (i + 1 < n) more = hop(ring, at, i, "", kv);
    attend_back(ring, ring.source(i), grad, *kept, kv, dq, dkv);
    const auto going = hop(ring, at, i, " of gradients", dkv);
    if (i + 1 < n) kv = co_await more;
    dkv = co_await going;
  }
  const NoGradGuard off;
  const DType dtype = q.dtype();
  co_return Tensors{ops::to(dq, dtype), ops::to(dkv[0], dtype), ops::to(dkv[1], dtype)};
}

class RingStep final : public internal::autograd::WaitingStep {
 public:
  RingStep(Edges inputs, Ring ring, std::shared_ptr<Kept> kept, TensorOptions options)
      : ring_(std::move(ring)), kept_(std::move(kept)), options_(options) {
    set_next(std::move(inputs));
  }
  std::string name() const override { return "ring_attention"; }
  std::string detail() const override { return ring_.at.tag; }
  uint64_t among() const override { return internal::collective::number_of(ring_.at.group); }
  Future<Tensors> begin(Tensors grads, uint64_t pass) override {
    if (grad_enabled())
      throw_error(ErrorKind::unimplemented,
                  "[ring_attention] it has no second derivative: leave out create_graph, or use Way::heads");
    check_saved();
    const Tensor grad = grads[0].defined() ? grads[0] : zeros(ring_.shape, options_);
    return internal::actors::start_task<Tensors>(back(ring_, kept_, grad, ring_.at.in_pass(pass)));
  }
  void check_saved() const override {
    if (!kept_)
      throw_invalid(
          "[ring_attention] what it kept for the backward pass was freed by one before: give that one "
          "retain_graph");
    for (const SavedTensor* saved : {&kept_->q, &kept_->k, &kept_->v, &kept_->mix})
      if (saved->changed()) throw_invalid("[ring_attention] a tensor that it needs " + saved->complaint());
  }
  void release_saved() override { kept_ = nullptr; }

 private:
  const Ring ring_;
  std::shared_ptr<Kept> kept_;
  const TensorOptions options_;
};

}  // namespace

Task<Tensor> ring_attention(Tensor q, Tensor k, Tensor v, Group group, Sequence sequence,
                            AttentionOptions options) {
  // Ranks may differ in whether what they bring needs a gradient: in a context all record it.
  const bool needed = q.requires_grad() || k.requires_grad() || v.requires_grad();
  const bool recorded = grad_enabled() && (needed || frame().context != 0);
  Ring ring{MeetingsOfWorker::here("ring_attention")->next(group, "ring_attention", options.layer),
            std::move(sequence), std::move(options), group.rank(), q.shape()};
  const Tensor own_q = q.detach();
  Tensors kv{k.detach(), v.detach()};
  Mixed mixed;
  for (size_t i = 0; i < ring.ranks(); ++i) {
    Future<Tensors> more;
    const bool last = i + 1 == ring.ranks();
    if (!last) more = hop(ring, ring.at, i, "", kv);
    attend(ring, ring.source(i), own_q, kv, mixed);
    if (!last) kv = co_await more;
  }
  if (mixed.mix.defined()) {
    mixed.mix = ops::to(mixed.mix, own_q.dtype());
  } else {  // no position is here
    const NoGradGuard off;
    mixed = {own_q, ops::sum(own_q, {-1})};
  }
  if (!recorded) co_return mixed.mix;
  const Tensor out = mixed.mix.detach();
  Edges inputs;
  for (const Tensor& x : {q, k, v}) inputs.push_back(x.requires_grad() ? x.gradient_edge() : Edge());
  auto kept =
      std::make_shared<Kept>(Kept{SavedTensor(q.detach()), SavedTensor(k.detach()), SavedTensor(v.detach()),
                                  SavedTensor(mixed.mix), SavedTensor(mixed.logs)});
  out.set_grad_fn({make_ref<RingStep>(std::move(inputs), std::move(ring), std::move(kept), q.options()), 0});
  co_return out;
}

}  // namespace troupe::internal::cp
