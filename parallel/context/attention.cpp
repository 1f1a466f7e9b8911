#include "parallel/context/attention.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/ops.h"
#include "parallel/tensor/convert.h"

namespace troupe::cp {

namespace {

std::string shape_text(const Tensor& t) { return t.defined() ? t.summary() : "undefined"; }

void check(const Tensor& q, const Tensor& k, const Tensor& v, const Group& group, const Sequence& sequence,
           const AttentionOptions& options) {
  const auto refuse = [&](const std::string& why) {
    throw_invalid(fmt::format("[context attention] {}q {}, k {}, v {}: {}",
                              options.layer.empty() ? "" : "of " + options.layer + ", ", shape_text(q),
                              shape_text(k), shape_text(v), why));
  };
  if (sequence.ranks() != std::max<size_t>(group.size(), 1))
    refuse(fmt::format("the sequence is cut for {} ranks, and the group has {}", sequence.ranks(),
                       group.size()));
  for (const Tensor& t : {q, k, v})
    if (!t.defined() || t.dim() != 4 || !is_floating(t.dtype()))
      refuse("expected [batch, heads, time, width] of floats");
  if (k.shape() != v.shape() || q.size(0) != k.size(0) || q.size(3) != k.size(3) || q.dtype() != k.dtype() ||
      k.dtype() != v.dtype())
    refuse("expected one batch, width and dtype of all, and k and v of one shape");
  const int64_t mine = sequence.sizes()[group.size() > 1 ? group.rank() : 0];
  if (q.size(2) != mine || k.size(2) != mine)
    refuse(fmt::format("of a sequence of {} positions this rank has {}", sequence.time(), mine));
  if (k.size(1) == 0 || q.size(1) % k.size(1) != 0) refuse("the heads of k have to divide those of q");
  if (options.way == Way::ring && k.size(1) != q.size(1))
    refuse("by Way::ring q, k and v have the same heads: repeat those of k and v, or use Way::heads");
}

Tensor here(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  return ops::scaled_dot_product_attention(q, k, v, {}, 0, options.causal, options.scale,
                                           k.size(1) != q.size(1));
}

// What came of the exchange: all positions of some heads.
Tensor of_own_heads(const Tensor& q, const Tensor& kv, const Sequence& sequence,
                    const AttentionOptions& options) {
  // Without heads a rank still has a part in both exchanges of the backward pass.
  if (!q.size(1)) return ops::add(q, ops::select(kv, 0, 0));
  const Tensor both = sequence.in_order(kv, 3);
  const Tensor y = here(sequence.in_order(q, 2), ops::select(both, 0, 0), ops::select(both, 0, 1), options);
  return sequence.by_ranks(y, 2);
}

Task<Tensor> by_heads(Tensor q, Tensor k, Tensor v, Group group, Sequence sequence,
                      AttentionOptions options) {
  const std::vector<int64_t> times = sequence.sizes();
  const std::vector<int64_t> of_kv = tp::even_sizes(k.size(1), group.size());
  std::vector<int64_t> of_q = of_kv;
  for (int64_t& heads : of_q) heads *= q.size(1) / k.size(1);
  const auto moving_q = tp::exchange(q, group, 2, 1, times, of_q);
  const auto moving_kv = tp::exchange(ops::stack({k, v}, 0), group, 3, 2, times, of_kv);
  const Tensor own_q = co_await moving_q;
  const Tensor own_kv = co_await moving_kv;
  const auto back = tp::exchange(of_own_heads(own_q, own_kv, sequence, options), group, 1, 2, of_q, times);
  co_return co_await back;
}

}  // namespace

Tensor cut(const Tensor& x, const Group& group, int64_t dim, const Sequence& sequence) {
  return tp::cut(sequence.by_ranks(x, dim), group, dim, sequence.sizes());
}

Future<Tensor> join(const Tensor& x, const Group& group, int64_t dim, const Sequence& sequence) {
  return tp::join(x, group, dim, sequence.sizes())
      .then([dim, sequence, grad = grad_enabled()](const Tensor& y) {
        const GradMode mode(grad);
        return sequence.in_order(y, dim);
      });
}

Task<Tensor> attention(Tensor q, Tensor k, Tensor v, Group group, Sequence sequence,
                       AttentionOptions options) {
  check(q, k, v, group, sequence, options);
  if (group.size() <= 1) co_return here(q, k, v, options);
  Task<Tensor> task = options.way == Way::ring
                          ? internal::cp::ring_attention(q, k, v, group, sequence, options)
                          : by_heads(q, k, v, group, sequence, options);
  co_return co_await std::move(task);
}

}  // namespace troupe::cp
