#include "parallel/server/served_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/distributed/context.h"
#include "core/codec/keep.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/index.h"
#include "ops/view.h"
#include "parallel/server/client_base.h"
#include "parallel/server/compression/packed.h"
#include "parallel/server/gradients_came.h"
#include "parallel/server/push_part.h"
#include "parallel/server/table.h"

template struct troupe::internal::StructCodec<troupe::parallel::ServedTable>;

namespace troupe::parallel {
namespace {

// Distinct rows, server by server and in order there; and where each id is among them.
struct Routed {
  std::vector<Tensor> ids;  // of each server
  Tensor at;                // int64 [number of ids]
};

Routed route(const ServedTable& table, const Tensor& ids) {
  if (!ids.defined() || ids.dtype() != int64)
    throw_invalid(
        fmt::format("[table] ids are {}; expected int64", ids.defined() ? ids.summary() : "undefined"));
  const Tensor given = ids.data_on(cpu).contiguous_data();
  const int64_t n = given.numel();
  std::vector<std::tuple<int64_t, int64_t, int64_t>> order;  // server, row, position
  order.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = given.data<int64_t>()[i];
    if (row < 0 || row >= table.rows)
      throw_invalid(fmt::format("[table] row {} is out of range; the table has {} rows", row, table.rows));
    order.emplace_back(table.server_of(row), row, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::vector<int64_t>> of_server(table.servers.size());
  Routed out{{}, empty({n}, int64)};
  int64_t distinct = -1, last = -1;
  for (const auto& [server, row, i] : order) {
    if (distinct < 0 || row != last) {
      of_server[static_cast<size_t>(server)].push_back(row);
      ++distinct, last = row;
    }
    out.at.data<int64_t>()[i] = distinct;
  }
  for (const auto& rows : of_server) out.ids.push_back(tensor(rows));
  return out;
}

std::vector<int64_t> with_width(const Shape& shape, int64_t width) {
  std::vector<int64_t> dims(shape.begin(), shape.end());
  dims.push_back(width);
  return dims;
}

// The rows of all servers, as they were asked for; recorded where they are.
Tensor assembled(const Tensors& rows, const Tensor& at, const std::vector<int64_t>& dims) {
  return ops::reshape(ops::embedding(at, ops::cat(rows, 0)), dims);
}

}  // namespace

int64_t ServedTable::server_of(int64_t row) const {
  const auto n = static_cast<int64_t>(servers.size());
  internal::parallel::check_servers(servers.size(), "[table]");
  return by_range ? row / ((rows + n - 1) / n) : row % n;
}

ServedTable serve_table(const Here& here, const std::vector<Place>& where, int64_t rows, int64_t width,
                        const ServerOptions& options, const TableOptions& table) {
  if (where.empty() || rows < 1 || width < 1)
    throw_invalid(fmt::format("[table] {} rows of width {} on {} workers; expected at least one of each",
                              rows, width, where.size()));
  if (!(table.scale >= 0) || !std::isfinite(table.scale))
    throw_invalid(fmt::format("[table] a scale of {}; expected a finite number of at least 0", table.scale));
  internal::parallel::check_pulls(options.pull, "[table]");
  internal::parallel::check_pushes(options.push, "[table]");
  check_trainers(options.trainers);
  if (options.push.keeps_residual())
    throw_invalid(
        "[table] pushes compressed as \"" + options.push.str() +
        "\": what it leaves out of a row could only follow when a step names that row again; expected "
        "none, fp16 or bf16 for a table");
  ServedTable served{rows, width, table.cut == Rows::by_range, {}, options.pull, options.push, {}};
  const auto backup = internal::parallel::place_of_backup(here, options.backup, where, "[table]");
  const auto n = static_cast<int64_t>(where.size());
  const int64_t run = (rows + n - 1) / n;
  for (int64_t s = 0; s < n; ++s) {
    TableShard shard{rows, width, s, n, s < rows ? (rows - s + n - 1) / n : 0, table.scale, table.seed};
    if (served.by_range)
      shard.first = s * run, shard.stride = 1, shard.count = std::clamp<int64_t>(rows - s * run, 0, run);
    const Place& place = where[static_cast<size_t>(s)];
    internal::parallel::serve_at<Table>(here, served, place, backup, shard, options);
  }
  return served;
}

Future<Tensor> read(const ServedTable& table, const Tensor& ids) {
  internal::parallel::check_servers(table.servers.size(), "[table]");
  NoGradGuard guard;
  const Routed routed = route(table, ids);
  std::vector<Future<Tensor>> asked;
  const auto servers = internal::parallel::servers_now(table);
  for (size_t s = 0; s < routed.ids.size(); ++s)
    asked.push_back(servers[s].call<&Table::read>(routed.ids[s]));
  return all(asked).then([at = routed.at, dims = with_width(ids.shape(), table.width)](const Tensors& rows) {
    NoGradGuard guard;
    return assembled(rows, at, dims);
  });
}

Future<void> set_policy(const ServedTable& table, const ServerPolicy& policy) {
  return internal::parallel::change_all<&Table::set_policy>(internal::parallel::servers_now(table), {},
                                                            policy);
}
Future<void> set_options(const ServedTable& table, const ValueMap& changed) {
  return internal::parallel::change_all<&Table::set_options>(internal::parallel::servers_now(table), {},
                                                             changed);
}
Future<std::vector<ServerReport>> report(const ServedTable& table) {
  return internal::parallel::ask_all<&Table::report>(internal::parallel::servers_now(table));
}

// ---- the client

struct TableClient::State final : Stateful {
  State(ServedTable from, const ClientOptions& options)
      : table((internal::parallel::check_servers(from.servers.size(), "[table]"), std::move(from))),
        servers(this->table.servers, this->table.backups, options, "[table]") {}
  // `invalid` where the gradients of the current context are no push.
  void check_context(double weight) const;
  // Pushes gradients that the servers have, times `factor`.
  Future<Pushed> push_recorded(double weight, double factor);
  bool compresses() const { return table.pull.on() || table.push.on(); }
  std::string state_name() const override { return "TableClient"; }
  StateDict state() const override {
    StateDict out;
    internal::pack(out, "stamps", internal::to_value(servers.stamps));
    return out;
  }
  void load_state(const StateDict& state) override {
    servers.load_stamps(internal::from_value<std::vector<VersionStamp>>(internal::unpack(state, "stamps")));
    leaves = {};
  }

  ServedTable table;
  internal::parallel::ClientBase<Table> servers;
  GradientsCame came;
  struct {
    uint64_t context = 0;
    std::vector<std::pair<Tensor, Tensor>> pulls;  // ids and rows
  } leaves;  // where gradients stay here: what was pulled in the last context
};

TableClient::TableClient(ServedTable table, ClientOptions options)
    : state_(std::make_shared<State>(std::move(table), options)) {}
TableClient::~TableClient() {
  if (state_) state_->servers.part();
}
TableClient::State& TableClient::state() const {
  if (!state_) throw_invalid("[table] an empty client was used: it was moved from");
  return *state_;
}

void TableClient::State::check_context(double weight) const {
  check_context_push(servers.stamps[0], "[table]", "push()");
  if (weight != 0) came.check("[table]", servers.name());
}

Future<Pushed> TableClient::State::push_recorded(double weight, double factor) {
  check_context(weight);
  came.note_push();
  return servers.push<&Table::push_context>(
      [&](size_t i) { return std::tuple(servers.stamps[i], weight, factor); });
}

Future<void> TableClient::leave() { return state().servers.leave(); }

// Servers that have none of the rows are asked as well: they say whether the trainer may read.
Future<Tensor> TableClient::pull(const Tensor& ids) const {
  State& s = state();
  const bool recorded = grad_enabled() && frame().context != 0, keeps = recorded && s.compresses();
  GradMode mode(grad_enabled() && !s.compresses());
  const Routed routed = route(s.table, ids);
  const auto asked =
      s.servers.ask<&Table::pull>([&](size_t i) { return std::tuple(routed.ids[i], s.table.pull); });
  return all(asked).then([state = state_, ids, routed, recorded, keeps,
                          grad = grad_enabled()](const std::vector<PulledRows>& all) mutable {
    GradMode mode(grad);
    Tensors rows;
    const int64_t width = state->table.width;
    for (size_t i = 0; i < all.size(); ++i) {
      state->servers.stamps[i] = all[i].stamp;
      const Whole whole{float32, {routed.ids[i].numel(), width}};
      rows.push_back(state->compresses() ? unpack(all[i].rows, {whole}).at(0) : all[i].rows.parts.at(0));
    }
    Tensor out = assembled(rows, routed.at, with_width(ids.shape(), width));
    if (keeps) out = out.detach().requires_grad_();
    if (recorded) state->came.note_pull({out});
    if (!keeps) return out;
    auto& leaves = state->leaves;
    if (std::exchange(leaves.context, frame().context) != frame().context) leaves.pulls.clear();
    leaves.pulls.emplace_back(ids, out);
    return out;
  });
}

Future<Pushed> TableClient::push(const Tensor& ids, const Tensor& gradients, double weight) const {
  State& s = state();
  NoGradGuard guard;
  const Routed routed = route(s.table, ids);
  const auto dims = with_width(ids.shape(), s.table.width);
  if (!gradients.defined() || gradients.dtype() != float32 ||
      gradients.shape() != Shape(std::span<const int64_t>(dims)))
    throw_invalid(fmt::format("[table] gradients are {} for ids {}; expected float32 {}",
                              gradients.defined() ? gradients.summary() : "undefined", ids.summary(),
                              Shape(std::span<const int64_t>(dims)).str()));
  int64_t distinct = 0;
  for (const Tensor& t : routed.ids) distinct += t.numel();
  const Tensor rows = zeros({distinct, s.table.width}), dense = gradients.data_on(cpu).contiguous_data();
  if (weight != 0 && s.table.servers.size() > 1)
    check_finite(s.servers.name(), dense);  // before one of them has a part
  for (int64_t i = 0; i < ids.numel(); ++i) {
    float* row = rows.data<float>() + routed.at.data<int64_t>()[i] * s.table.width;
    const float* g = dense.data<float>() + i * s.table.width;
    for (int64_t j = 0; j < s.table.width; ++j) row[j] += g[j];
  }
  int64_t from = 0;
  return s.servers.push<&Table::push>([&](size_t i) {
    const int64_t begin = std::exchange(from, from + routed.ids[i].numel());
    return std::tuple(s.servers.stamps[i], routed.ids[i],
                      pack({ops::slice(rows, 0, begin, from)}, s.table.push), weight);
  });
}

Future<Pushed> TableClient::push_context(double weight) const {
  State& s = state();
  if (!s.compresses()) return s.push_recorded(weight, 1);
  s.check_context(weight);
  s.came.note_push();
  NoGradGuard guard;
  Tensors ids{zeros({0}, int64)}, gradients{zeros({0, s.table.width})};
  if (s.leaves.context == frame().context)
    for (const auto& [of, rows] : s.leaves.pulls)
      if (const Tensor g = autograd::context_gradient(rows); g.defined()) {
        ids.push_back(ops::reshape(of, {of.numel()}));
        gradients.push_back(ops::reshape(g.detach(), {of.numel(), s.table.width}));
      }
  s.leaves = {};
  return push(ops::cat(ids, 0), ops::cat(gradients, 0), weight);
}

optim::StepPart TableClient::part(double weight) const {
  State& s = state();
  internal::parallel::check_not_compressed(s.compresses());
  return internal::parallel::push_part(
      {.check =
           [&s](double w, bool scaled) {
             s.check_context(w);
             return internal::parallel::sizes_of_all(s.servers.look<&Table::check_push>(
                 [&](size_t i) { return std::tuple(s.servers.stamps[i], w, scaled); }));
           },
       .push = [&s](double w, double factor) { return s.push_recorded(w, factor); },
       .trainer = s.servers.name(),
       .client = &s,
       .servers = internal::parallel::identity_of(s.table.servers)},
      weight);
}

}  // namespace troupe::parallel
