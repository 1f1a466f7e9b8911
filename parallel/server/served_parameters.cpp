#include "parallel/server/served_parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/distributed/context.h"
#include "core/codec/keep.h"
#include "core/graph/node.h"
#include "ops/arithmetic.h"
#include "ops/index.h"
#include "ops/view.h"
#include "optim/whole_parameters.h"
#include "parallel/server/client_base.h"
#include "parallel/server/compression/packed.h"
#include "parallel/server/gradients_came.h"
#include "parallel/server/push_part.h"
#include "parallel/server/server.h"
#include "rref/ref_table.h"

template struct troupe::internal::StructCodec<troupe::parallel::Served>;

namespace troupe::parallel {
namespace {

Shape shape_of(const std::vector<int64_t>& dims) { return Shape(std::span<const int64_t>(dims)); }

// The values of all blocks as parameters; recorded where they are.
Tensors assembled(const Served& served, const std::vector<Tensors>& blocks) {
  std::vector<Tensors> parts(served.shapes.size());
  for (size_t b = 0; b < blocks.size(); ++b)
    for (size_t i = 0; i < served.extents[b].size(); ++i)
      parts[static_cast<size_t>(served.extents[b][i].tensor)].push_back(blocks[b].at(i));
  Tensors out;
  for (size_t t = 0; t < parts.size(); ++t) {
    const Tensor whole = parts[t].size() == 1 ? parts[t][0] : ops::cat(parts[t], 0);
    out.push_back(whole.shape() == shape_of(served.shapes[t]) ? whole
                                                              : ops::reshape(whole, served.shapes[t]));
  }
  return out;
}

// What of the tensors, one for each parameter, concerns block b.
Tensors parts_of(const Served& served, const Tensors& tensors, size_t b) {
  NoGradGuard guard;
  Tensors out;
  for (const Extent& e : served.extents[b]) {
    const Tensor& t = tensors[static_cast<size_t>(e.tensor)];
    const bool whole = !t.defined() || e.end - e.begin == t.numel();
    out.push_back(whole ? t : ops::slice(ops::reshape(t, {t.numel()}), 0, e.begin, e.end));
    if (t.defined()) out.back() = out.back().data_on(cpu);  // servers are on the CPU
  }
  return out;
}

// What block b has of the parameters.
std::vector<Whole> wholes_of(const Served& served, size_t b) {
  std::vector<Whole> out;
  for (const Extent& e : served.extents[b]) {
    const Shape whole = shape_of(served.shapes[static_cast<size_t>(e.tensor)]);
    out.push_back({static_cast<DType>(served.dtype),
                   e.end - e.begin == whole.numel() ? whole : Shape{e.end - e.begin}});
  }
  return out;
}

}  // namespace

std::vector<std::vector<Extent>> cut(const std::vector<int64_t>& numels, int64_t item_bytes, int64_t servers,
                                     int64_t block_bytes) {
  if (servers < 1 || item_bytes < 1 || block_bytes < item_bytes)
    throw_invalid(fmt::format(
        "[server] {} servers and blocks of {} bytes; expected at least 1, and room for an element", servers,
        block_bytes));
  int64_t total = 0;
  for (const int64_t n : numels) total += n;
  const int64_t most = block_bytes / item_bytes;
  const int64_t rounds = std::max<int64_t>((total + most * servers - 1) / (most * servers), 1);
  const int64_t blocks = std::clamp<int64_t>(rounds * servers, 1, std::max<int64_t>(total, 1));
  std::vector<std::vector<Extent>> out(static_cast<size_t>(blocks));
  int64_t block = 0, at = 0;  // elements before this one
  const auto end_of = [&](int64_t b) { return (b + 1) * (total / blocks) + std::min(b + 1, total % blocks); };
  for (size_t t = 0; t < numels.size(); ++t) {
    int64_t begin = 0;
    do {  // a tensor without elements is in one block as well
      while (block + 1 < blocks && at == end_of(block)) ++block;
      const int64_t taken = std::min(numels[t] - begin, end_of(block) - at);
      out[static_cast<size_t>(block)].push_back({static_cast<int64_t>(t), begin, begin + taken});
      begin += taken, at += taken;
    } while (begin < numels[t]);
  }
  return out;
}

Served serve(const Here& here, const std::vector<Place>& where, const Tensors& start,
             const ServerOptions& options, const BlockOptions& blocks) {
  if (where.empty() || start.empty())
    throw_invalid(fmt::format("[server] {} tensors for servers on {} workers; expected at least one of each",
                              start.size(), where.size()));
  internal::parallel::check_pulls(options.pull, "[server]");
  internal::parallel::check_pushes(options.push, "[server]");
  check_trainers(options.trainers);
  const NoGradGuard none;  // the servers start with copies of the values: parameters of modules will do
  Served served;
  served.pull = options.pull, served.push = options.push;
  std::vector<int64_t> numels;
  for (const Tensor& t : start) {
    if (!t.defined() || t.dtype() != start[0].dtype())
      throw_invalid(fmt::format("[server] parameter {} is {}, and parameter 0 {}; expected one dtype",
                                numels.size(), t.defined() ? t.summary() : "undefined",
                                start[0].defined() ? start[0].summary() : "undefined"));
    numels.push_back(t.numel());
    served.shapes.emplace_back(t.shape().begin(), t.shape().end());
  }
  served.dtype = static_cast<int64_t>(start[0].dtype());
  const auto backup = internal::parallel::place_of_backup(here, options.backup, where, "[server]");
  const auto servers = static_cast<int64_t>(where.size());
  served.extents = cut(numels, static_cast<int64_t>(item_size(start[0].dtype())), servers, blocks.bytes);
  for (size_t b = 0; b < served.extents.size(); ++b) {
    if (optim::needs_whole_parameters(options.optimizer))
      for (const Extent& e : served.extents[b])
        if (e.end - e.begin != numels[static_cast<size_t>(e.tensor)])
          throw_invalid(
              fmt::format("[server] {} needs whole tensors, and parameter {} is cut; expected one server "
                          "and larger blocks",
                          options.optimizer, e.tensor));
    const Place& place = where[b % where.size()];
    const Tensors part = parts_of(served, start, b);
    internal::parallel::serve_at<Server>(here, served, place, backup, part, options);
  }
  return served;
}

// ---- all blocks at once

Future<Tensors> read(const Served& served, int64_t at_least) {
  NoGradGuard guard;
  return internal::parallel::ask_all<&Server::read>(internal::parallel::servers_now(served), at_least)
      .then([served](const std::vector<Pulled>& all) {
        NoGradGuard guard;
        std::vector<Tensors> blocks;
        for (const Pulled& pulled : all) blocks.push_back(pulled.values.parts);
        return assembled(served, blocks);
      });
}

Future<void> set_policy(const Served& served, const ServerPolicy& policy) {
  return internal::parallel::change_all<&Server::set_policy>(internal::parallel::servers_now(served), {},
                                                             policy);
}

Future<void> set_options(const Served& served, const ValueMap& changed) {
  return internal::parallel::change_all<&Server::set_options>(internal::parallel::servers_now(served), {},
                                                              changed);
}

Future<std::vector<ServerReport>> report(const Served& served) {
  return internal::parallel::ask_all<&Server::report>(internal::parallel::servers_now(served));
}

// ---- the client

struct Client::State final : Stateful {
  State(Served from, const ClientOptions& options)
      : served((internal::parallel::check_servers(from.servers.size(), "[server]"), std::move(from))),
        servers(this->served.servers, this->served.backups, options, "[server]"),
        residuals(this->served.servers.size()) {}
  void check(const Tensors& tensors, bool counts) const;
  Packed packed(const Tensors& gradients, size_t b, double weight);
  Tensors take(const std::vector<Pulled>& blocks);
  // `invalid` where the gradients of the current context are no push.
  void check_context(double weight) const;
  // Pushes gradients that the servers have, times `factor`.
  Future<Pushed> push_recorded(double weight, double factor);
  bool compresses() const { return served.pull.on() || served.push.on(); }
  // What a push was refused with, or brought too late, was not sent: for each block, when its answer is
  // there.
  template <class T>
  static std::function<void(size_t, const Result<T>&)> kept_if_lost(const std::shared_ptr<State>& state) {
    if (!state->served.push.keeps_residual()) return nullptr;
    const auto before = std::make_shared<const std::vector<Tensors>>(state->residuals);
    return [state, before](size_t b, const Result<T>& result) {
      if (!result.ok() || result.value().late) state->residuals[b] = (*before)[b];
    };
  }

  std::string state_name() const override { return "Client"; }
  StateDict state() const override {
    StateDict out;
    internal::pack(out, "stamps", internal::to_value(servers.stamps));
    internal::pack(out, "values", internal::to_value(values));
    internal::pack(out, "residuals", internal::to_value(residuals));
    return out;
  }
  void load_state(const StateDict& state) override {
    const auto of = [&](const char* name) { return internal::unpack(state, name); };
    servers.load_stamps(internal::from_value<std::vector<VersionStamp>>(of("stamps")));
    values = internal::from_value<Tensors>(of("values"));
    residuals = internal::from_value<std::vector<Tensors>>(of("residuals"));
    leaves = {};
  }

  Served served;
  internal::parallel::ClientBase<Server> servers;
  GradientsCame came;
  Tensors values;                  // of the last pull, under local(H)
  std::vector<Tensors> residuals;  // of each block, where pushes leave something out
  struct {
    uint64_t context = 0;
    std::vector<Tensors> pulls;
  } leaves;  // where gradients stay here: what was pulled in the last context
};

void Client::State::check(const Tensors& tensors, bool counts) const {
  if (tensors.size() != served.shapes.size())
    throw_invalid(
        fmt::format("[server] {} gradients for {} parameters", tensors.size(), served.shapes.size()));
  for (size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].defined() && tensors[t].shape() != shape_of(served.shapes[t]))
      throw_invalid(fmt::format("[server] gradient {} is {}; its parameter has the shape {}", t,
                                tensors[t].summary(), shape_of(served.shapes[t]).str()));
  if (servers.stamps[0].step < 0)
    throw_invalid("[server] a push before the first pull: there is nothing that it was computed on");
  if (served.servers.size() == 1) return;  // it sees for itself
  std::vector<Whole> values;
  for (const auto& shape : served.shapes)
    values.push_back({static_cast<DType>(served.dtype), shape_of(shape)});
  internal::parallel::check_gradients(servers.name(), tensors, values, counts);
}

// A push of weight 0 counts for nothing, so nothing is made good with it.
Packed Client::State::packed(const Tensors& gradients, size_t b, double weight) {
  const bool counts = weight != 0 && served.push.on();
  return pack(parts_of(served, gradients, b), counts ? served.push : Compression(),
              counts && served.push.keeps_residual() ? &residuals[b] : nullptr);
}

Tensors Client::State::take(const std::vector<Pulled>& blocks) {
  std::vector<Tensors> values_of;
  for (size_t b = 0; b < blocks.size(); ++b) {
    servers.stamps[b] = blocks[b].stamp;
    values_of.push_back(compresses() ? unpack(blocks[b].values, wholes_of(served, b))
                                     : blocks[b].values.parts);
  }
  Tensors out = assembled(served, values_of);
  values = servers.stamps[0].local_steps > 0 ? out : Tensors();
  return out;
}

Client::Client(Served served, ClientOptions options)
    : state_(std::make_shared<State>(std::move(served), options)) {}
Client::~Client() {
  if (state_) state_->servers.part();
}
Client::State& Client::state() const {
  if (!state_) throw_invalid("[server] an empty client was used: it was moved from");
  return *state_;
}

void Client::State::check_context(double weight) const {
  check_context_push(servers.stamps[0], "[server]", "push_values()");
  if (weight != 0) came.check("[server]", servers.name());
}

Future<Pushed> Client::State::push_recorded(double weight, double factor) {
  check_context(weight);
  came.note_push();
  return servers.push<&Server::push_context>(
      [&](size_t i) { return std::tuple(servers.stamps[i], weight, factor); });
}

Future<void> Client::leave() { return state().servers.leave(); }

Future<Tensors> Client::pull(int64_t at_least) const {
  State& s = state();
  const bool recorded = grad_enabled() && frame().context != 0, keeps = recorded && s.compresses();
  GradMode mode(grad_enabled() && !s.compresses());
  const auto blocks =
      s.servers.ask<&Server::pull>([&](size_t) { return std::tuple(at_least, s.served.pull); });
  return all(blocks).then(
      [state = state_, recorded, keeps, grad = grad_enabled()](const std::vector<Pulled>& all) mutable {
        GradMode mode(grad);
        Tensors out = state->take(all);
        for (Tensor& t : out)
          if (keeps) t = t.detach().requires_grad_();
        if (recorded) state->came.note_pull(out);
        if (!keeps) return out;
        auto& leaves = state->leaves;
        if (std::exchange(leaves.context, frame().context) != frame().context) leaves.pulls.clear();
        leaves.pulls.push_back(out);
        return out;
      });
}

Future<Pushed> Client::push(const Tensors& gradients, double weight) const {
  State& s = state();
  s.check(gradients, weight != 0);
  NoGradGuard guard;
  const auto lost = State::kept_if_lost<Pushed>(state_);
  return s.servers.push<&Server::push>(
      [&](size_t b) { return std::tuple(s.servers.stamps[b], s.packed(gradients, b, weight), weight); },
      lost);
}

Future<Tensors> Client::push_pull(const Tensors& gradients, double weight) const {
  State& s = state();
  s.check(gradients, weight != 0);
  NoGradGuard guard;
  const auto lost = State::kept_if_lost<Pulled>(state_);
  const auto blocks = s.servers.ask<&Server::push_pull>([&](size_t b) {
    return std::tuple(s.servers.stamps[b], s.packed(gradients, b, weight), weight, s.served.pull);
  });
  for (size_t b = 0; lost && b < blocks.size(); ++b)
    blocks[b].watch([lost, b](const Result<Pulled>& result) { lost(b, result); });
  return all(blocks).then([state = state_](const std::vector<Pulled>& all) mutable {
    NoGradGuard guard;
    return state->take(all);
  });
}

Future<Pushed> Client::push_context(double weight) const {
  State& s = state();
  if (!s.compresses()) return s.push_recorded(weight, 1);
  s.check_context(weight);
  s.came.note_push();
  Tensors sums(s.served.shapes.size());
  if (s.leaves.context == frame().context)
    for (const Tensors& pull : s.leaves.pulls)
      for (size_t t = 0; t < pull.size(); ++t) {
        NoGradGuard guard;
        const Tensor gradient = autograd::context_gradient(pull[t]);
        if (gradient.defined())
          sums[t] = sums[t].defined() ? ops::add(sums[t], gradient.detach()) : gradient.detach();
      }
  s.leaves = {};
  return push(sums, weight);
}

optim::StepPart Client::part(double weight) const {
  State& s = state();
  internal::parallel::check_not_compressed(s.compresses());
  return internal::parallel::push_part(
      {.check =
           [&s](double w, bool scaled) {
             s.check_context(w);
             return internal::parallel::sizes_of_all(s.servers.look<&Server::check_push>(
                 [&](size_t i) { return std::tuple(s.servers.stamps[i], w, scaled); }));
           },
       .push = [&s](double w, double factor) { return s.push_recorded(w, factor); },
       .trainer = s.servers.name(),
       .client = &s,
       .servers = internal::parallel::identity_of(s.served.servers)},
      weight);
}

Future<Pushed> Client::push_values(const Tensors& values, double weight) const {
  State& s = state();
  if (s.values.empty())
    throw_invalid(
        "[server] push_values() outside of local(H): the last pull was under a policy that takes gradients");
  s.check(values, weight != 0);
  NoGradGuard guard;
  Tensors differences;
  for (size_t t = 0; t < values.size(); ++t)
    differences.push_back(values[t].defined() ? ops::sub(s.values[t], values[t].detach().data_on(cpu))
                                              : Tensor());
  return push(differences, weight);
}

int64_t Client::version() const {
  const auto& stamps = state().servers.stamps;
  return std::min_element(stamps.begin(), stamps.end(),
                          [](const VersionStamp& a, const VersionStamp& b) { return a.version < b.version; })
      ->version;
}
int64_t Client::step() const { return state().servers.stamps[0].step; }
int64_t Client::local_steps() const { return state().servers.stamps[0].local_steps; }
const std::string& Client::name() const& { return state().servers.name(); }

}  // namespace troupe::parallel
