#include "collective/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "core/codec/codec.h"
#include "core/graph/copy_on_write.h"
#include "core/memory/arena.h"
#include "core/memory/lent.h"
#include "core/tensor/creation.h"

namespace troupe::internal::collective {

namespace {

void check_tensor(std::string_view what, const Tensor& x) {
  if (!x.defined()) throw_invalid(fmt::format("[{}] the tensor is undefined", what));
  if (x.requires_grad())
    throw_error(ErrorKind::unimplemented,
                fmt::format("[{}] no gradient goes through groups: bring x.detach()", what));
}

// Of one dtype, which it returns, and on one device.
DType check_list(std::string_view what, const Tensors& xs) {
  if (xs.empty()) throw_invalid(fmt::format("[{}] the list is empty: bring a tensor at least", what));
  for (const Tensor& x : xs) {
    check_tensor(what, x);
    if (x.device() != xs[0].device())
      throw_invalid(fmt::format("[{}] a list is on one device, and this one is on {} and {}: move it to one",
                                what, xs[0].device().str(), x.device().str()));
    if (x.dtype() != xs[0].dtype())
      throw_invalid(
          fmt::format("[{}] a list has one dtype, and this one has {} and {}: bring one list for each", what,
                      name(xs[0].dtype()), name(x.dtype())));
  }
  return xs[0].dtype();
}

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

Shape row_of(const Tensor& x) {
  Shape row = x.shape();
  if (!row.empty()) row.erase(0);
  return row;
}
Shape with_rows(int64_t rows, Shape row) {
  row.insert(0, rows);
  return row;
}
int64_t rows_of(const Tensor& x) { return x.dim() ? x.size(0) : 1; }

std::vector<int64_t> divided(std::string_view what, int64_t all, const std::vector<int64_t>& rows,
                             Standing at) {
  if (rows.empty()) {
    const auto n = static_cast<int64_t>(at.ranks);
    std::vector<int64_t> even;
    for (int64_t k = 0; k < n; ++k) even.push_back(all / n + (k < all % n));
    return even;
  }
  if (rows.size() != at.ranks || std::ranges::any_of(rows, [](int64_t r) { return r < 0; }) ||
      std::accumulate(rows.begin(), rows.end(), int64_t{0}) != all)
    throw_invalid(
        fmt::format("[{}] .rows = {{{}}} for {} ranks and a tensor of {} rows: give each rank's number, "
                    "{} together",
                    what, fmt::join(rows, ", "), at.ranks, all, all));
  return rows;
}

// Rows of a range, in a tensor of its own. `device`: of none.
Tensor own_rows(const Elements& elements, Range range, int64_t rows, const Shape& row, Device device) {
  const Shape shape = with_rows(rows, row);
  if (!range.size) return empty(shape, {elements.dtype(), device});
  const Tensor t = elements.read(range);
  return t.alias(shape, shape.contiguous_strides(), t.storage_offset()).clone_data();
}

std::vector<size_t> elements_of(const std::vector<int64_t>& rows, const Shape& row) {
  std::vector<size_t> all;
  for (const int64_t r : rows) all.push_back(static_cast<size_t>(r * row.numel()));
  return all;
}

// Whether all summands of an element come in one step.
bool adds_at_once(const Signature& s) {
  return s.on_devices || s.problem.ranks == 2 || s.way == Way::whole || s.way == Way::direct;
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
  const size_t divide_by = op == ReduceOp::mean && adds_at_once(signature) ? signature.problem.ranks : 1;
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
  if (op == ReduceOp::mean && ranks > 1 && !adds_at_once(signature)) {
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
    elements.add_given(range, lazy_copy(x));
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
      r.elements.add_given(range, lazy_copy(x));
    else
      r.elements.add(range, empty(x.shape(), {dtype, r.device}));
  });
  r.result = [](const Elements& e) { return e.tensors(); };
  return r;
}

Request barrier_of(Standing at) { return {.signature = {.problem = {Collective::barrier, at.ranks, 0, {}}}}; }

// ---- of sizes that not all ranks know

Described gather_of(Collective c, Tensor x, size_t root, Standing at) {
  check_tensor(name(c), x);
  Problem{c, at.ranks, root, std::vector<size_t>(at.ranks)}.check();
  return {{c, root, true, x.dtype(), row_of(x), {rows_of(x)}}, {lazy_copy(x)}};
}

Described scatter_of(Tensor x, size_t root, const std::vector<int64_t>& rows, Standing at) {
  Problem{Collective::scatter, at.ranks, root, std::vector<size_t>(at.ranks)}.check();
  if (at.rank != root)
    return {{Collective::scatter, root, false, float32, {}, {}}, {}, x.defined() ? x.device() : cpu};
  check_tensor("scatter", x);
  return {{Collective::scatter, root, true, x.dtype(), row_of(x), divided("scatter", rows_of(x), rows, at)},
          {lazy_copy(x)}};
}

Described all_to_all_of(Tensors xs, Standing at) {
  if (xs.size() != at.ranks)
    throw_invalid(
        fmt::format("[all_to_all] {} tensors for {} ranks: bring one for each", xs.size(), at.ranks));
  const DType dtype = check_list("all_to_all", xs);
  Described d{{Collective::all_to_all, 0, true, dtype, row_of(xs[0]), {}}, {}};
  for (const Tensor& x : xs) {
    if (row_of(x) != d.description.row)
      throw_invalid(fmt::format("[all_to_all] tensors of {} and {}: only the numbers of rows may differ",
                                xs[0].shape().str(), x.shape().str()));
    d.description.rows.push_back(rows_of(x));
    d.brings.push_back(lazy_copy(x));
  }
  return d;
}

namespace {

// collective, root, has_tensor, dtype, dimensions of a row; has_place, version, GPU, device; the row's
// dimensions; number of rows, these.
constexpr size_t kPlace = 5, kHead = 9;
size_t width(size_t ranks) { return kHead + kMaxDims + 1 + ranks; }

}  // namespace

Request exchange_of(const Description& own, Standing at) {
  const size_t n = width(at.ranks);
  std::vector<int64_t> x{static_cast<int64_t>(own.collective), static_cast<int64_t>(own.root), own.has_tensor,
                         static_cast<int64_t>(own.dtype), own.row.rank()};
  const DevicePlace place = own.place.value_or(DevicePlace());
  x.insert(x.end(),
           {own.place.has_value(), place.version, static_cast<int64_t>(place.gpu), int64_t{place.device}});
  x.insert(x.end(), own.row.begin(), own.row.end());
  x.resize(kHead + kMaxDims);
  x.push_back(static_cast<int64_t>(own.rows.size()));
  x.insert(x.end(), own.rows.begin(), own.rows.end());
  x.resize(n);
  Request r{.signature = {.problem = {Collective::all_gather, at.ranks, 0, std::vector<size_t>(at.ranks, n)},
                          .reduction = "sizes",
                          .dtype = int64},
            .elements = Elements(int64)};
  // Whose tensors are of the CPU may not exchange sizes at all, and reads here what the others have.
  const bool all_exchange = own.collective == Collective::scatter || own.collective == Collective::all_to_all;
  if (own.place && !all_exchange) r.signature.reduction += " of tensors on devices";
  const Tensor all = empty({static_cast<int64_t>(n * at.ranks)}, int64);
  std::ranges::copy(x, all.data<int64_t>() + at.rank * n);
  r.elements.add({0, n * at.ranks}, all);
  r.result = [](const Elements& e) { return e.tensors(); };
  return r;
}

std::vector<Description> descriptions_in(const Tensor& exchanged, Standing at) {
  std::vector<Description> all;
  const size_t n = width(at.ranks);
  for (size_t k = 0; k < at.ranks; ++k) {
    const int64_t* const x = exchanged.data<int64_t>() + k * n;
    const int64_t dims = x[4], rows = x[kHead + kMaxDims];
    if (x[0] < 0 || x[0] >= kCollectiveCount || x[3] < 0 || x[3] >= kDTypeCount || dims < 0 ||
        dims >= kMaxDims || rows < 0 || rows > static_cast<int64_t>(at.ranks))
      throw_invalid(fmt::format("[group] rank {} told no sizes of an operation", k));
    const int64_t* const first = x + kHead;
    const int64_t* const row = first + kMaxDims + 1;
    Description d{static_cast<Collective>(x[0]),
                  static_cast<size_t>(x[1]),
                  x[2] != 0,
                  static_cast<DType>(x[3]),
                  Shape(std::span(first, static_cast<size_t>(dims))),
                  {row, row + rows}};
    if (x[kPlace] != 0) {
      const int64_t* const place = x + kPlace + 1;
      if (place[2] < 0 || place[2] > UINT32_MAX)
        throw_invalid(fmt::format("[group] rank {} told of no device", k));
      d.place = {place[0], static_cast<uint64_t>(place[1]), static_cast<uint32_t>(place[2])};
    }
    if (std::ranges::any_of(d.row, [](int64_t s) { return s < 0; }) ||
        std::ranges::any_of(d.rows, [](int64_t r) { return r < 0; }))
      throw_invalid(fmt::format("[group] rank {} told sizes below 0", k));
    all.push_back(std::move(d));
  }
  return all;
}

namespace {

std::string text(const Description& d) {
  const std::string root = d.collective == Collective::gather    ? fmt::format(" to rank {}", d.root)
                           : d.collective == Collective::scatter ? fmt::format(" from rank {}", d.root)
                                                                 : "";
  return fmt::format("{} {} rows of {}{}", name(d.collective), name(d.dtype), d.row.str(), root);
}

// The rank that says what is the same for all.
size_t check_alike(const std::vector<Description>& all, const std::vector<GroupMember>& members) {
  const Collective c = all[0].collective;
  const size_t first = c == Collective::scatter ? std::min(all[0].root, all.size() - 1) : 0;
  const Description& d = all[first];
  for (size_t k = 0; k < all.size(); ++k) {
    const Description& o = all[k];
    const char* const differ = o.collective != c                ? "operations"
                               : o.root != d.root               ? "roots"
                               : !o.has_tensor                  ? nullptr
                               : o.dtype != d.dtype             ? "dtypes"
                               : o.row != d.row                 ? "rows"
                               : o.rows.size() != d.rows.size() ? "numbers of rows"
                                                                : nullptr;
    if (differ)
      throw_invalid(
          fmt::format("[{}] ranks brought different {}: rank {} ({}) {}; rank {} ({}) {}: all do the same "
                      "in the same order, or give each operation a tag",
                      name(c), differ, first, members[first].name, text(d), k, members[k].name, text(o)));
  }
  return first;
}

}  // namespace

Request request_of(const Described& own, const std::vector<Description>& all, Standing at,
                   const std::vector<GroupMember>& members) {
  const Description& first = all[check_alike(all, members)];
  const Collective c = first.collective;
  const size_t r = at.rank, n = at.ranks;
  const Shape row = first.row;
  std::vector<int64_t> rows;
  if (c == Collective::scatter)
    rows = first.rows;
  else
    for (const Description& d : all) rows.insert(rows.end(), d.rows.begin(), d.rows.end());
  const Problem problem{c, n, first.root, elements_of(rows, row)};
  problem.check();
  const Device device = own.device();
  Request request{.signature = {.problem = problem, .dtype = first.dtype},
                  .elements = Elements(first.dtype),
                  .device = device};
  const auto place = [&](int64_t n_rows) { return empty(with_rows(n_rows, row), {first.dtype, device}); };
  const auto sum = [](const std::vector<int64_t>& x) {
    return std::accumulate(x.begin(), x.end(), int64_t{0});
  };

  if (c == Collective::all_to_all) {
    Tensors get;
    for (size_t k = 0; k < n; ++k) {
      if (k == r) {
        get.push_back(own.brings[r]);
        continue;
      }
      get.push_back(place(rows[k * n + r]));
      request.elements.add(problem.block(k * n + r), get[k]);
      request.elements.add_given(problem.block(r * n + k), own.brings[k]);
    }
    request.result = [get](const Elements&) { return get; };
    return request;
  }
  if (c == Collective::scatter) {
    if (r != first.root) {
      request.elements.add(problem.block(r), place(rows[r]));
      request.result = [](const Elements& e) { return e.tensors(); };
      return request;
    }
    request.elements.add_given({0, problem.elements()}, own.brings[0]);
    request.result = [range = problem.block(r), mine = rows[r], row, device](const Elements& e) {
      return Tensors{own_rows(e, range, mine, row, device)};
    };
    return request;
  }
  if (c == Collective::gather && r != first.root) {
    request.elements.add_given(problem.block(r), own.brings[0]);
    request.result = [](const Elements&) { return Tensors(1); };
    return request;
  }
  request.elements.add({0, problem.elements()}, place(sum(rows)));
  if (device.is_cpu()) request.elements.write(problem.block(r), {own.brings[0]});
  request.result = [](const Elements& e) { return e.tensors(); };
  return request;
}

}  // namespace troupe::internal::collective
