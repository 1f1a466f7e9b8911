#include "parallel/tensor/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "autograd/waiting_step.h"
#include "collective/engine.h"
#include "core/async/future_combinators.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"
#include "parallel/tensor/check_ranks.h"
#include "parallel/tensor/meetings.h"
#include "parallel/tensor/placement.h"

namespace troupe::tp {

namespace {

using Sizes = std::vector<int64_t>;

enum class Kind { enter, sum, gather, sum_scatter, cut, join, exchange, route };

struct Conversion {
  Kind kind;
  int64_t dim = 0, to_dim = 0;  // along which it is cut; of an exchange: before, and after
  // A route has here what comes from each rank, and what goes to each.
  Sizes sizes = {}, to_sizes = {};
  std::string layer = {};
  std::vector<Sizes> all = {};  // of a route: what each rank sends to each; empty: not known

  const char* name() const {
    constexpr const char* names[] = {"enter", "sum",  "gather",   "sum_scatter",
                                     "cut",   "join", "exchange", "route"};
    return names[static_cast<int>(kind)];
  }
  // The conversion of the gradients.
  Conversion back() const {
    constexpr Kind kinds[] = {Kind::sum,  Kind::enter, Kind::sum_scatter, Kind::gather,
                              Kind::join, Kind::cut,   Kind::exchange,    Kind::route};
    const Kind k = kinds[static_cast<int>(kind)];
    return moves() ? Conversion{k, to_dim, dim, to_sizes, sizes, layer, transposed(all)}
                   : Conversion{k, dim, to_dim, sizes, to_sizes, layer};
  }
  static std::vector<Sizes> transposed(const std::vector<Sizes>& all) {
    std::vector<Sizes> out(all.size(), Sizes(all.size()));
    for (size_t k = 0; k < all.size(); ++k)
      for (size_t r = 0; r < all.size(); ++r) out[r][k] = all[k][r];
    return out;
  }
  // How many elements each rank sends to each, if all know it.
  Sizes elements_of_all(const Tensor& x) const {
    Sizes out;
    int64_t rest = 1;
    for (int64_t d = 0; d < x.dim(); ++d)
      if (d != dim && d != to_dim) rest *= x.size(d);
    if (kind == Kind::exchange)
      for (const int64_t from : sizes)
        for (const int64_t to : to_sizes) out.push_back(from * to * rest);
    for (const Sizes& sent : all)
      for (const int64_t rows : sent) out.push_back(rows * rest);
    return out;
  }
  // Each rank has something for each.
  bool moves() const { return kind == Kind::exchange || kind == Kind::route; }
  bool waits() const { return kind != Kind::enter && kind != Kind::cut; }
  // Whether ranks may differ in whether what they bring needs a gradient. Then all record it.
  bool always_recorded() const { return kind != Kind::enter && kind != Kind::cut; }
};

// A future that is dropped goes on, since other ranks need it. One that is cancelled, as by a pass that has
// failed, ends what it comes from on all of them.
template <class T>
Future<T> cancelling(const Future<T>& result, const std::vector<FutureBase>& sources) {
  result.watch([sources](const Result<T>& r) {
    if (r.ok() || r.error().kind() != ErrorKind::cancelled) return;
    for (const FutureBase& source : sources) source.cancel();
  });
  return result;
}
template <class T, class F>
auto then(const Future<T>& source, F f) {
  return cancelling(source.then(std::move(f)), {source});
}

Tensor to_front(const Tensor& x, int64_t dim) { return dim ? ops::contiguous(ops::transpose(x, 0, dim)) : x; }

Tensor piece(const Tensor& x, int64_t dim, const Sizes& sizes, size_t rank) {
  const int64_t from =
      std::accumulate(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(rank), int64_t{0});
  return ops::slice(x, dim, from, from + sizes[rank]);
}

Tensor flat(const Tensor& x) { return ops::reshape(ops::contiguous(x), {x.numel()}); }

// Of a slice with the elements that `x` has along its other dimensions.
Shape with_size(const Tensor& x, int64_t dim, int64_t size) {
  Shape shape = x.shape();
  shape[static_cast<int>(dim)] = size;
  return shape;
}

// What is sent, and what becomes of it; without gradients.
Tensor converted_here(const Conversion& c, const Tensor& x, size_t rank) {
  return c.kind == Kind::enter ? x : ops::clone(piece(x, c.dim, c.sizes, rank));
}

// What a rank sends of x.
void count_sent(const Conversion& c, const Tensor& x, const Meeting& at) {
  const auto n = static_cast<int64_t>(at.group.size()), bytes = static_cast<int64_t>(x.nbytes());
  const auto without_own = [&](const Sizes& sizes) {
    const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    return all ? bytes / all * (all - sizes[at.group.rank()]) : 0;
  };
  if (c.kind == Kind::sum)
    at.count_sum(bytes);
  else if (c.kind == Kind::gather || c.kind == Kind::join)
    at.count(bytes * (n - 1));
  else if (c.kind == Kind::sum_scatter)
    at.count(without_own(c.sizes));
  else if (c.moves())
    at.count(without_own(c.to_sizes));
}

Future<Tensor> exchanged(const Conversion& c, const Tensor& x, const Meeting& at) {
  const size_t rank = at.group.rank();
  Tensors pieces;
  for (size_t r = 0; r < c.to_sizes.size(); ++r) pieces.push_back(flat(piece(x, c.to_dim, c.to_sizes, r)));
  std::vector<Shape> shapes;
  for (const int64_t size : c.sizes) {
    Shape shape = with_size(x, c.dim, size);
    if (c.kind == Kind::exchange) shape[static_cast<int>(c.to_dim)] = c.to_sizes[rank];
    shapes.push_back(shape);
  }
  const CollectiveOptions options{.tag = at.tag, .rows = c.elements_of_all(x)};
  return then(at.group.all_to_all(std::move(pieces), options), [shapes, dim = c.dim](const Tensors& came) {
    const NoGradGuard off;
    Tensors pieces;
    for (size_t r = 0; r < came.size(); ++r) pieces.push_back(ops::reshape(came[r], IntList(shapes[r])));
    return ops::cat(pieces, dim);
  });
}

Future<Tensor> converted(const Conversion& c, const Tensor& x, const Meeting& at) {
  const NoGradGuard off;
  const Tensor own = x.detach();
  if (!c.waits()) return Future<Tensor>::ready(converted_here(c, own, at.group.rank()));
  count_sent(c, own, at);
  if (c.moves()) return exchanged(c, own, at);
  const CollectiveOptions options{.tag = at.tag, .rows = c.kind == Kind::sum ? Sizes() : c.sizes};
  if (c.kind == Kind::sum) return at.group.all_reduce(own, options);
  const Tensor rows = to_front(own, c.dim);
  const auto moving = c.kind == Kind::sum_scatter ? at.group.reduce_scatter(rows, options)
                                                  : at.group.all_gather(rows, options);
  if (!c.dim) return moving;
  return then(moving, [dim = c.dim](const Tensor& y) {
    const NoGradGuard off;
    return to_front(y, dim);
  });
}

class ConversionStep final : public internal::autograd::WaitingStep {
 public:
  // `check`: of what was converted; may be empty.
  ConversionStep(Edge input, Conversion how, Meeting at, const Tensor& result, Future<void> check = {})
      : how_(std::move(how)),
        at_(std::move(at)),
        shape_(result.shape()),
        options_(result.options()),
        check_(std::move(check)) {
    set_next({std::move(input)});
  }
  std::string name() const override { return how_.name(); }
  std::string detail() const override { return at_.tag; }
  uint64_t among() const override { return internal::collective::number_of(at_.group); }
  Future<Tensors> begin(Tensors grads, uint64_t pass) override {
    if (!check_.valid()) return begin_checked(std::move(grads), pass);
    return check_.then([self = Ref<ConversionStep>(this), grads, pass, on = grad_enabled()] {
      const GradMode mode(on);
      return self->begin_checked(grads, pass);
    });
  }

 private:
  Future<Tensors> begin_checked(Tensors grads, uint64_t pass) const;

  const Conversion how_;
  const Meeting at_;
  const Shape shape_;
  const TensorOptions options_;
  const Future<void> check_;
};

// Where the history of what a conversion gives goes.
struct Recorded {
  bool on = false;
  Edge input = {};

  Recorded(const Conversion& c, const Tensor& x)
      : on(grad_enabled() && is_floating(x.dtype()) &&
           (x.requires_grad() || (frame().context && c.always_recorded()))) {
    if (on) input = x.gradient_edge();
  }
  Tensor result(const Conversion& c, const Meeting& at, const Tensor& y) const {
    if (!on) return y;
    const Tensor out = y.detach();
    out.set_grad_fn({make_ref<ConversionStep>(input, c, at, y), 0});
    return out;
  }
};

Future<Tensor> convert(const Conversion& c, const Tensor& x, const Meeting& at) {
  const auto finish = [c, at, recorded = Recorded(c, x)](const Tensor& y) {
    return recorded.result(c, at, y);
  };
  if (!at.checks || at.checks->empty()) return converted(c, x, at).then(finish);
  return all(std::exchange(*at.checks, {})).then([c, x, at, finish](const auto&) {
    return converted(c, x, at).then(finish);
  });
}

Tensor convert_here(const Conversion& c, const Tensor& x, const Meeting& at) {
  Tensor y;
  {
    const NoGradGuard off;
    y = converted_here(c, x.detach(), at.group.rank());
  }
  Future<void> check;
  if (at.checks) at.checks->push_back(check = same_on_ranks(x, at, "forward"));
  const Recorded recorded(c, x);
  if (recorded.on && c.kind == Kind::enter) y.set_view_of(x, ViewOrigin::own_function);
  if (recorded.on) y.set_grad_fn({make_ref<ConversionStep>(recorded.input, c, at, y, std::move(check)), 0});
  return y;
}

Future<Tensors> ConversionStep::begin_checked(Tensors grads, uint64_t pass) const {
  const Conversion back = how_.back();
  const Meeting at = at_.in_pass(pass);
  const bool came = grads[0].defined();
  if (!back.waits()) {  // what is equal on all ranks came to all or to none
    const auto result = [back, at, grad = grads[0], on = grad_enabled()] {
      const GradMode mode(on);
      return Tensors{grad.defined() ? convert_here(back, grad, at) : Tensor()};
    };
    if (!checks_ranks()) return Future<Tensors>::ready(result());
    return then(same_on_ranks(grads[0], at, "backward"), result);
  }
  const Tensor grad = came ? std::move(grads[0]) : zeros(shape_, options_);
  const Tensor any = full({1}, came ? 1.0 : 0.0, options_);
  const auto result = [back, at, recorded = Recorded(back, grad)](const Tensor& y, const Tensor& any_came) {
    return Tensors{any_came.item() > 0 ? recorded.result(back, at, y) : Tensor()};
  };
  if (back.kind == Kind::sum) {
    const CollectiveOptions options{.tag = at.tag, .gradients = false};
    at.count_sum(static_cast<int64_t>(grad.nbytes() + any.nbytes()));
    return then(at.group.all_reduce(Tensors{grad.detach(), any}, options),
                [result](const Tensors& sums) { return result(sums[0], sums[1]); });
  }
  const CollectiveOptions options{.tag = at.of("whether any came").tag, .gradients = false};
  at.count_sum(static_cast<int64_t>(any.nbytes()));
  const std::vector<Future<Tensor>> both{converted(back, grad, at), at.group.all_reduce(any, options)};
  const auto done =
      all(both, OnError::at_once).then([result](const Tensors& y) { return result(y[0], y[1]); });
  return cancelling(done, {both[0], both[1]});
}

// Several whole tensors that are repeated, whose gradients are summed in one all_reduce.
class EnterStep final : public internal::autograd::WaitingStep {
 public:
  EnterStep(Edges inputs, Conversion how, Meeting at, Tensors results)
      : how_(std::move(how)), at_(std::move(at)) {
    for (const Tensor& y : results) results_.emplace_back(y.shape(), y.options());
    num_inputs_ = static_cast<uint32_t>(results.size());
    set_next(std::move(inputs));
  }
  std::string name() const override { return how_.name(); }
  std::string detail() const override { return at_.tag; }
  uint64_t among() const override { return internal::collective::number_of(at_.group); }
  Future<Tensors> begin(Tensors grads, uint64_t pass) override {
    const Meeting at = at_.in_pass(pass);
    const Conversion back = how_.back();
    std::vector<double> came;
    std::vector<Recorded> recorded;
    Tensors all;
    int64_t bytes = 0;
    for (size_t i = 0; i < grads.size(); ++i) {
      came.push_back(grads[i].defined() ? 1 : 0);
      if (!grads[i].defined()) grads[i] = zeros(results_[i].first, results_[i].second);
      recorded.emplace_back(back, grads[i]);
      all.push_back(grads[i].detach());
    }
    all.push_back(tensor(came).to(all[0].dtype()).to(all[0].device()));
    for (const Tensor& t : all) bytes += static_cast<int64_t>(t.nbytes());
    at.count_sum(bytes);
    const CollectiveOptions options{.tag = at.tag, .gradients = false};
    return then(at.group.all_reduce(std::move(all), options), [back, at, recorded](const Tensors& sums) {
      const auto any_came = sums.back().to(cpu).to(float64).to_vector<double>();
      Tensors out(recorded.size());
      for (size_t i = 0; i < out.size(); ++i)
        if (any_came[i] > 0) out[i] = recorded[i].result(back, at.of(std::to_string(i)), sums[i]);
      return out;
    });
  }

 private:
  const Conversion how_;
  const Meeting at_;
  std::vector<std::pair<Shape, TensorOptions>> results_;
};

// ---- what is given

bool alone(const Group& group) { return group.size() <= 1; }

Meeting meet(const Conversion& c, const Group& group) {
  Meeting at = MeetingsOfWorker::here(c.name())->next(group, c.name(), c.layer);
  internal::parallel::be_rank_of(group);
  return at;
}

void check_defined(const Conversion& c, const Tensor& x) {
  if (!x.defined()) throw_invalid(fmt::format("[{}] the tensor is undefined", c.name()));
}

int64_t checked_dim(const Conversion& c, const Tensor& x, int64_t dim) {
  if (dim >= -x.dim() && dim < x.dim()) return dim < 0 ? dim + x.dim() : dim;
  throw_invalid(fmt::format("[{}] {} has no dimension {}", c.name(), x.summary(), dim));
}

// Of a dimension that is cut: `sizes`, or even ones.
Sizes sizes_of_cut(const Conversion& c, const Tensor& x, int64_t dim, const Sizes& sizes, size_t ranks) {
  const int64_t n = x.size(dim);
  if (sizes.empty()) return even_sizes(n, ranks);
  if (sizes.size() == ranks && std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == n &&
      std::ranges::all_of(sizes, [](int64_t s) { return s >= 0; }))
    return sizes;
  throw_invalid(fmt::format("[{}] sizes {} do not cut dimension {} of {} for {} ranks", c.name(), sizes, dim,
                            x.summary(), ranks));
}

// Those that the ranks have of a dimension that is cut already.
Future<Sizes> sizes_of_all(const Conversion& c, const Tensor& x, int64_t dim, const Sizes& sizes,
                           const Meeting& at) {
  const int64_t mine = x.size(dim);
  const size_t ranks = at.group.size(), rank = at.group.rank();
  if (!sizes.empty()) {
    if (sizes.size() == ranks && sizes[rank] == mine) return Future<Sizes>::ready(sizes);
    throw_invalid(
        fmt::format("[{}] rank {} of {} has {} along dimension {} of {}, and the sizes are given as {}",
                    c.name(), rank, ranks, mine, dim, x.summary(), sizes));
  }
  const CollectiveOptions options{.tag = at.of("sizes").tag, .rows = Sizes(ranks, 1)};
  at.count(static_cast<int64_t>(sizeof(int64_t) * (ranks - 1)));
  return at.group.all_gather(full({1}, Scalar(mine), int64), options).then([](const Tensor& all) {
    return all.to_vector<int64_t>();
  });
}

// Of a tensor that is cut: when all know the sizes.
Future<Tensor> convert_cut(Conversion c, const Tensor& x, const Group& group, int64_t dim,
                           const Sizes& sizes) {
  check_defined(c, x);
  if (alone(group)) return Future<Tensor>::ready(x);
  c.dim = checked_dim(c, x, dim);
  const Meeting at = meet(c, group);
  return sizes_of_all(c, x, c.dim, sizes, at)
      .then([c, x, at, grad = grad_enabled()](const Sizes& known) mutable {
        const GradMode mode(grad);
        c.sizes = known;
        return convert(c, x, at);
      });
}

}  // namespace

Tensor enter(const Tensor& x, const Group& group, std::string_view layer) {
  const Conversion c{.kind = Kind::enter, .layer = std::string(layer)};
  check_defined(c, x);
  if (alone(group) || !Recorded(c, x).on) return x;
  return convert_here(c, x, meet(c, group));
}

Tensors enter(const Tensors& xs, const Group& group, std::string_view layer) {
  const Conversion c{.kind = Kind::enter, .layer = std::string(layer)};
  Tensors out = xs, recorded;
  std::vector<size_t> places;
  Edges inputs;
  bool alike = !checks_ranks();
  for (size_t i = 0; i < xs.size(); ++i) {
    check_defined(c, xs[i]);
    if (alone(group) || !Recorded(c, xs[i]).on) continue;
    places.push_back(i), inputs.push_back(xs[i].gradient_edge());
    recorded.push_back(out[i] = xs[i].detach());
    alike = alike && out[i].dtype() == recorded[0].dtype() && out[i].device() == recorded[0].device();
  }
  if (!alike)
    for (const size_t i : places) out[i] = enter(xs[i], group, layer);
  if (!alike || places.empty()) return out;
  const auto step = make_ref<EnterStep>(std::move(inputs), c, meet(c, group), recorded);
  for (size_t k = 0; k < places.size(); ++k) {
    out[places[k]].set_view_of(xs[places[k]], ViewOrigin::own_function);
    out[places[k]].set_grad_fn({step, static_cast<uint32_t>(k)});
  }
  return out;
}

Future<Tensor> sum(const Tensor& x, const Group& group, std::string_view layer) {
  const Conversion c{.kind = Kind::sum, .layer = std::string(layer)};
  check_defined(c, x);
  return alone(group) ? Future<Tensor>::ready(x) : convert(c, x, meet(c, group));
}

Future<Tensor> gather(const Tensor& x, const Group& group, int64_t dim, const std::vector<int64_t>& sizes) {
  return convert_cut({.kind = Kind::gather}, x, group, dim, sizes);
}

Future<Tensor> join(const Tensor& x, const Group& group, int64_t dim, const std::vector<int64_t>& sizes) {
  return convert_cut({.kind = Kind::join}, x, group, dim, sizes);
}

Future<Tensor> sum_scatter(const Tensor& x, const Group& group, int64_t dim,
                           const std::vector<int64_t>& sizes) {
  Conversion c{.kind = Kind::sum_scatter};
  check_defined(c, x);
  if (alone(group)) return Future<Tensor>::ready(x);
  c.dim = checked_dim(c, x, dim);
  c.sizes = sizes_of_cut(c, x, c.dim, sizes, group.size());
  return convert(c, x, meet(c, group));
}

Tensor cut(const Tensor& x, const Group& group, int64_t dim, const std::vector<int64_t>& sizes) {
  Conversion c{.kind = Kind::cut};
  check_defined(c, x);
  if (alone(group)) return x;
  c.dim = checked_dim(c, x, dim);
  c.sizes = sizes_of_cut(c, x, c.dim, sizes, group.size());
  return convert_here(c, x, meet(c, group));
}

Future<Tensor> exchange(const Tensor& x, const Group& group, int64_t from, int64_t to,
                        const std::vector<int64_t>& from_sizes, const std::vector<int64_t>& to_sizes) {
  Conversion c{.kind = Kind::exchange};
  check_defined(c, x);
  if (alone(group)) return Future<Tensor>::ready(x);
  c.to_dim = checked_dim(c, x, to);
  if (c.to_dim == checked_dim(c, x, from))
    throw_invalid(fmt::format("[exchange] {} is cut along dimension {} already", x.summary(), from));
  c.to_sizes = sizes_of_cut(c, x, c.to_dim, to_sizes, group.size());
  return convert_cut(std::move(c), x, group, from, from_sizes);
}

Future<Tensor> route(const Tensor& x, const Group& group, const std::vector<int64_t>& sent,
                     const std::vector<int64_t>& received, std::string_view layer) {
  Conversion c{.kind = Kind::route, .sizes = received, .to_sizes = sent, .layer = std::string(layer)};
  check_defined(c, x);
  if (alone(group)) return Future<Tensor>::ready(x);
  checked_dim(c, x, 0);
  const size_t n = group.size();
  if (sent.size() != n || received.size() != n || std::ranges::min(sent) < 0 ||
      std::ranges::min(received) < 0 || sent[group.rank()] != received[group.rank()] ||
      std::accumulate(sent.begin(), sent.end(), int64_t{0}) != x.size(0))
    throw_invalid(
        fmt::format("[route] {} goes as {} rows, and {} come, on rank {} of {}: give a number for "
                    "each rank, all rows together, and the same twice for the own",
                    x.summary(), sent, received, group.rank(), n));
  return convert(c, x, meet(c, group));
}

Future<Tensor> route_known(const Tensor& x, const Group& group, const std::vector<std::vector<int64_t>>& rows,
                           std::string_view layer) {
  Conversion c{.kind = Kind::route, .layer = std::string(layer), .all = rows};
  check_defined(c, x);
  if (alone(group)) return Future<Tensor>::ready(x);
  checked_dim(c, x, 0);
  const size_t n = group.size(), rank = group.rank();
  bool fits = rows.size() == n;
  for (const Sizes& sent : rows) fits = fits && sent.size() == n && std::ranges::min(sent) >= 0;
  if (!fits || std::accumulate(rows[rank].begin(), rows[rank].end(), int64_t{0}) != x.size(0))
    throw_invalid(fmt::format(
        "[route_known] {} goes as {} on rank {} of {}: give for each rank the numbers of rows that it "
        "sends to each, those of this one all rows together",
        x.summary(), rows, rank, n));
  c.to_sizes = rows[rank];
  for (const Sizes& sent : rows) c.sizes.push_back(sent[rank]);
  return convert(c, x, meet(c, group));
}

}  // namespace troupe::tp
