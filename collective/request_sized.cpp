// What ranks tell each other first, of operations whose sizes not all of them know.
#include <fmt/format.h>

#include <algorithm>

#include "collective/matching/operation_text.h"
#include "collective/request.h"
#include "core/base/error.h"
#include "core/graph/copy_on_write.h"
#include "core/tensor/creation.h"

namespace troupe::internal::collective {

Described gather_of(Collective c, Tensor x, size_t root, const std::vector<int64_t>& rows, Standing at) {
  check_tensor(name(c), x);
  Problem{c, at.ranks, root, std::vector<size_t>(at.ranks)}.check();
  const int64_t mine = rows_of(x);
  const Shape row = row_of(x);
  if (!rows.empty()) {
    if (rows.size() != at.ranks || rows[at.rank] != mine)
      throw_invalid(
          fmt::format("[{}] .rows = {} for {} ranks, of which rank {} brings {} rows: give what each "
                      "brings",
                      name(c), rows_text(rows), at.ranks, at.rank, mine));
    total_rows(name(c), rows, row);
  }
  return {{c, root, true, x.dtype(), row, rows.empty() ? std::vector{mine} : rows}, {internal::lazy_copy(x)}};
}

Described scatter_of(Tensor x, size_t root, const std::vector<int64_t>& rows, Standing at) {
  Problem{Collective::scatter, at.ranks, root, std::vector<size_t>(at.ranks)}.check();
  if (at.rank != root)
    return {{Collective::scatter, root, false, float32, {}, {}}, {}, x.defined() ? x.device() : cpu};
  check_tensor("scatter", x);
  return {{Collective::scatter, root, true, x.dtype(), row_of(x), divided("scatter", rows_of(x), rows, at)},
          {internal::lazy_copy(x)}};
}

Described all_to_all_of(Tensors xs, const std::vector<int64_t>& rows, Standing at) {
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
    d.brings.push_back(internal::lazy_copy(x));
  }
  if (rows.empty()) return d;
  const std::vector<int64_t>& mine = d.description.rows;
  const bool fits = rows.size() == at.ranks * at.ranks && std::ranges::min(rows) >= 0;
  if (!fits ||
      !std::equal(mine.begin(), mine.end(), rows.begin() + static_cast<ptrdiff_t>(at.rank * at.ranks)))
    throw_invalid(
        fmt::format("[all_to_all] .rows = {} for {} ranks, of which rank {} brings {}: give {} numbers, what "
                    "rank 0 sends to each rank, then what rank 1 sends, and so on",
                    rows_text(rows), at.ranks, at.rank, rows_text(mine), at.ranks * at.ranks));
  total_rows("all_to_all", rows, d.description.row);
  d.description.of_all = rows;
  return d;
}

// Of rows without elements nobody would hear that ranks were told different numbers.
std::optional<std::vector<Description>> known_to_all(const Described& own, Standing at) {
  const Description& d = own.description;
  if (!d.row.numel() || !own.device().is_cpu()) return {};
  std::vector<Description> all(at.ranks, d);
  if (d.collective == Collective::all_to_all && !d.of_all.empty()) {
    for (size_t k = 0; k < at.ranks; ++k) {
      const auto from = d.of_all.begin() + static_cast<ptrdiff_t>(k * at.ranks);
      all[k].rows = {from, from + static_cast<ptrdiff_t>(at.ranks)};
    }
    return all;
  }
  if (d.collective != Collective::all_gather || d.rows.size() != at.ranks) return {};
  for (size_t k = 0; k < at.ranks; ++k) all[k].rows = {d.rows[k]};
  return all;
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
                          .dtype = int64},
            .elements = Elements(int64)};
  // Whose tensors are of the CPU may not exchange sizes at all, and reads here what the others have.
  const bool all_exchange = own.collective == Collective::scatter || own.collective == Collective::all_to_all;
  r.signature.tell_before(own.collective, own.place && !all_exchange);
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
    const char* const differ = o.collective != c    ? "operations"
                               : o.root != d.root   ? "roots"
                               : !o.has_tensor      ? nullptr
                               : o.dtype != d.dtype ? "dtypes"
                               : o.row != d.row     ? "rows"
                                                    : nullptr;
    if (differ)
      throw_invalid(
          fmt::format("[{}] ranks brought different {}: rank {} ({}) {}; rank {} ({}) {}: all do the same "
                      "in the same order, or give each operation a tag",
                      name(c), differ, first, members[first].name, text(d), k, members[k].name, text(o)));
  }
  return first;
}

// What ranks were told of each other is what these bring.
void keep_own_rows(std::vector<Description>& all, const std::vector<GroupMember>& members) {
  const size_t n = all.size();
  std::vector<int64_t> brought;
  for (size_t k = 0; k < n; ++k) {
    if (all[k].rows.size() != 1 && all[k].rows.size() != n)
      throw_invalid(fmt::format("[{}] rank {} told no rows", name(all[k].collective), k));
    brought.push_back(all[k].rows[all[k].rows.size() > 1 ? k : 0]);
  }
  for (size_t k = 0; k < n; ++k) {
    const std::vector<int64_t>& told = all[k].rows;
    for (size_t j = 0; j < n && told.size() > 1; ++j)
      if (told[j] != brought[j])
        throw_invalid(fmt::format("[{}] {} has .rows = {}, and {} brings {} rows: give what each brings",
                                  name(all[k].collective), rank_text(members, k), rows_text(told),
                                  rank_text(members, j), brought[j]));
  }
  for (size_t k = 0; k < n; ++k) all[k].rows = {brought[k]};
}

}  // namespace

Request request_of(const Described& own, std::vector<Description> all, Standing at,
                   const std::vector<GroupMember>& members) {
  const Description first = all[check_alike(all, members)];
  const Collective c = first.collective;
  if (c == Collective::gather || c == Collective::all_gather) keep_own_rows(all, members);
  const size_t r = at.rank, n = at.ranks;
  const Shape row = first.row;
  std::vector<int64_t> rows;
  if (c == Collective::scatter)
    rows = first.rows;
  else
    for (const Description& d : all) rows.insert(rows.end(), d.rows.begin(), d.rows.end());
  const int64_t total = total_rows(name(c), rows, row);
  const Problem problem{c, n, first.root, elements_of(rows, row)};
  problem.check();
  const Device device = own.device();
  Request request{.signature = {.problem = problem, .dtype = first.dtype, .shapes = {row}},
                  .elements = Elements(first.dtype),
                  .device = device};
  const auto place = [&](int64_t n_rows) { return empty(with_rows(n_rows, row), {first.dtype, device}); };

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
  request.rows = std::move(rows);
  request.elements.add({0, problem.elements()}, place(total));
  if (device.is_cpu()) request.elements.write(problem.block(r), {own.brings[0]});
  request.result = [](const Elements& e) { return e.tensors(); };
  return request;
}

}  // namespace troupe::internal::collective
