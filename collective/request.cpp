#include "collective/request.h"

#include <algorithm>
#include <map>

#include "core/codec/codec.h"
#include "core/graph/copy_on_write.h"
#include "core/memory/arena.h"
#include "core/memory/lent.h"
#include "core/tensor/creation.h"

namespace troupe::internal::collective {

namespace {

size_t count(const Tensor& t) { return static_cast<size_t>(t.numel()); }
size_t total(const Tensors& xs) {
  size_t n = 0;
  for (const Tensor& x : xs) n += count(x);
  return n;
}
std::vector<Shape> shapes_of(const Tensors& xs) {
  std::vector<Shape> all;
  for (const Tensor& x : xs) all.push_back(x.shape());
  return all;
}

// Calls add(range, tensor), one behind the other.
template <class F>
void add_all(Tensors xs, F add) {
  size_t at = 0;
  for (Tensor& x : xs) {
    const size_t n = count(x);
    add({at, n}, std::move(x));
    at += n;
  }
}

// Whether a mean is divided as its last summands come; else at the end.
bool divides_at_once(const Signature& s) {
  return s.on_devices || s.way == Way::hierarchical || completes_sums(s.problem, s.way, 0, 0);
}

// Walks over a list of tensors as over one.
class Cursor {
 public:
  explicit Cursor(const Tensors& tensors) : tensors_(tensors) { skip(); }
  size_t here() const { return count(tensors_[index_]) - at_; }  // elements that lie together
  const std::byte* bytes() const { return tensors_[index_].bytes() + at_ * tensors_[index_].element_size(); }
  void go(size_t n) {
    at_ += n;
    skip();
  }

 private:
  void skip() {
    while (index_ < tensors_.size() && at_ == count(tensors_[index_])) ++index_, at_ = 0;
  }
  const Tensors& tensors_;
  size_t index_ = 0, at_ = 0;
};

}  // namespace

void Request::take(std::vector<Operations::Taken> takes, size_t rank) {
  std::map<size_t, Tensors> summands;  // by rank
  Range range;
  for (auto& [receive, value] : takes) {
    auto came = internal::from_value<Tensors>(std::move(value));
    if (receive.take == Take::add) {
      summands.emplace(receive.from, std::move(came));
      range = receive.range;
    } else if (signature.problem.collective != Collective::broadcast || rank != signature.problem.root) {
      elements.write(receive.range, came);
    }
  }
  if (summands.empty()) return;
  // By these ways what is here may still wait to be sent. By the others an element is replaced by a sum that
  // was made of it, so it has come where it went.
  if (signature.way == Way::whole || signature.way == Way::doubling) elements.renew();
  const Problem& p = signature.problem;
  const bool completes = completes_sums(p, signature.way, rank, summands.begin()->first);
  const size_t divide_by = op == ReduceOp::mean && completes ? p.ranks : 1;
  const size_t item = item_size(signature.dtype);
  summands[rank];
  std::vector<Cursor> cursors;
  size_t own = 0;
  for (const auto& [r, tensors] : summands) {
    if (r == rank) own = cursors.size();
    cursors.emplace_back(tensors);
  }
  std::vector<const std::byte*> from(cursors.size());
  elements.rewrite(range, [&](const std::byte* now, std::byte* to, size_t n, size_t) {
    while (n) {
      size_t together = n;
      for (size_t r = 0; r < cursors.size(); ++r)
        if (r != own) together = std::min(together, cursors[r].here());
      for (size_t r = 0; r < cursors.size(); ++r) from[r] = r == own ? now : cursors[r].bytes();
      reduce_elements(op, signature.dtype, to, from, together, divide_by);
      for (size_t r = 0; r < cursors.size(); ++r)
        if (r != own) cursors[r].go(together);
      now += together * item, to += together * item, n -= together;
    }
  });
}

Tensors Request::results(size_t rank) {
  const size_t ranks = signature.problem.ranks;
  if (op == ReduceOp::mean && ranks > 1 && !divides_at_once(signature)) {
    elements.renew();  // sums may still be on their way to others
    for (const Range& range : signature.problem.gets(rank))
      elements.rewrite(range, [&](const std::byte* sum, std::byte* to, size_t n, size_t) {
        reduce_elements(op, signature.dtype, to, {&sum, 1}, n, ranks);
      });
  }
  return result ? result(elements) : Tensors();
}

namespace {

// The caller's tensor: written in place if nobody else has it, or devices do that.
void add_summand(Elements& elements, Range range, Tensor x) {
  if (x.nbytes() >= Arena::kSmallest && x.is_sole_handle()) collect_lent();  // who had it may have let go
  if (x.is_exclusive())
    elements.add(range, std::move(x));
  else if (x.device().is_cpu())
    elements.add_given(range, internal::lazy_copy(x));
  else
    elements.add(range, x.clone_data());
}

}  // namespace

Request reduction_of(Collective c, Tensors xs, ReduceOp op, size_t root, Standing at) {
  const std::string_view what = name(c);
  const DType dtype = check_list(what, xs);
  check_reduction(what, op, dtype);
  Request r{.signature = {.problem = {c, at.ranks, root, {total(xs)}},
                          .reduction = std::string(name(op)),
                          .dtype = dtype,
                          .shapes = shapes_of(xs)},
            .op = op,
            .elements = Elements(dtype),
            .device = xs[0].device()};
  r.signature.problem.check();
  add_all(std::move(xs), [&](Range range, Tensor x) { add_summand(r.elements, range, std::move(x)); });
  const bool gets = c != Collective::reduce || at.rank == root;
  r.result = [gets](const Elements& e) { return gets ? e.tensors() : Tensors(e.tensors().size()); };
  return r;
}

Request reduce_scatter_of(Tensor x, ReduceOp op, const std::vector<int64_t>& rows, Standing at) {
  check_tensor("reduce_scatter", x);
  check_reduction("reduce_scatter", op, x.dtype());
  const Shape row = row_of(x), shape = x.shape();
  const auto all = divided("reduce_scatter", rows_of(x), rows, at);
  Request r{.signature = {.problem = {Collective::reduce_scatter, at.ranks, 0, elements_of(all, row)},
                          .reduction = std::string(name(op)),
                          .dtype = x.dtype(),
                          .shapes = {shape}},
            .op = op,
            .elements = Elements(x.dtype()),
            .device = x.device()};
  const size_t n = count(x);
  add_summand(r.elements, {0, n}, std::move(x));
  r.result = [range = r.signature.problem.block(at.rank), mine = all[at.rank], row, device = r.device](
                 const Elements& e) { return Tensors{own_rows(e, range, mine, row, device)}; };
  return r;
}

Request broadcast_of(Tensors xs, size_t root, Standing at) {
  const DType dtype = check_list("broadcast", xs);
  Request r{.signature = {.problem = {Collective::broadcast, at.ranks, root, {total(xs)}},
                          .dtype = dtype,
                          .shapes = shapes_of(xs)},
            .elements = Elements(dtype),
            .device = xs[0].device()};
  r.signature.problem.check();
  add_all(std::move(xs), [&](Range range, const Tensor& x) {
    if (at.rank == root)
      r.elements.add_given(range, internal::lazy_copy(x));
    else
      r.elements.add(range, empty(x.shape(), {dtype, r.device}));
  });
  r.result = [](const Elements& e) { return e.tensors(); };
  return r;
}

Request barrier_of(Standing at) { return {.signature = {.problem = {Collective::barrier, at.ranks, 0, {}}}}; }

}  // namespace troupe::internal::collective
