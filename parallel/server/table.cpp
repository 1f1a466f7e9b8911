#include "parallel/server/table.h"

#include <fmt/format.h>

#include <cstring>

#include "autograd/distributed/context.h"
#include "autograd/distributed/optim/context_gradients.h"
#include "core/base/generator.h"
#include "core/codec/codec.h"
#include "core/tensor/creation.h"
#include "ops/inplace.h"
#include "ops/view.h"
#include "optim/clip.h"
#include "optim/gradient_norm.h"

namespace troupe::parallel {

Tensor initial_rows(const Tensor& ids, int64_t width, double scale, uint64_t seed) {
  const Tensor rows = empty({ids.numel(), width});
  const Tensor at = ids.contiguous_data();
  const uint64_t start = splitmix64(seed);
  for (int64_t k = 0; k < ids.numel(); ++k)
    for (int64_t j = 0; j < width; ++j) {
      const auto element = static_cast<uint64_t>(at.data<int64_t>()[k] * width + j);
      const double u = static_cast<double>(splitmix64(start + element) >> 11) * 0x1p-53;
      rows.data<float>()[k * width + j] = static_cast<float>(scale * (2 * u - 1));
    }
  return rows;
}

Table::Table(TableShard shard, ServerOptions options, ServerPair pair)
    : ServerBase(options, std::move(pair)), shard_(shard), steps_(options.optimizer) {
  if (shard.count < 0 || shard.width < 1 || shard.stride < 1 || shard.first < 0 ||
      (shard.count > 0 && shard.first + (shard.count - 1) * shard.stride >= shard.rows))
    throw_invalid(fmt::format("[table] {} rows from {} on, {} apart, of width {}; the table has {} rows",
                              shard.count, shard.first, shard.stride, shard.width, shard.rows));
  const Tensor ids = empty({shard.count}, int64);
  for (int64_t k = 0; k < shard.count; ++k) ids.data<int64_t>()[k] = shard.first + k * shard.stride;
  table_ = initial_rows(ids, shard.width, shard.scale, shard.seed);
  auto optimizer = optim::make(options.optimizer, options.options, optim::NoParameters());
  const ValueMap map = optimizer->options_map(0);
  if (const auto it = map.find("initial_accumulator_value");
      it != map.end() && optimizer->number("initial_accumulator_value") != 0)
    throw_invalid("[table] adagrad with an initial_accumulator_value; expected 0: rows begin at any step");
  use(std::move(optimizer));
}

// Numbers of the whole table as those of this shard.
Tensor Table::here(const Tensor& ids) const {
  if (!ids.defined() || ids.dtype() != int64 || ids.dim() != 1)
    throw_invalid(
        fmt::format("[table] ids are {}; expected int64 [k]", ids.defined() ? ids.summary() : "undefined"));
  const Tensor given = ids.contiguous_data(), out = empty({ids.numel()}, int64);
  for (int64_t k = 0; k < ids.numel(); ++k) {
    const int64_t id = given.data<int64_t>()[k], from = id - shard_.first, at = from / shard_.stride;
    if (from < 0 || from % shard_.stride != 0 || at >= shard_.count)
      throw_invalid(
          id < 0 || id >= shard_.rows
              ? fmt::format("[table] row {} is out of range; the table has {} rows", id, shard_.rows)
              : fmt::format("[table] row {} is not here; expected one of {}, {}, ... ({} rows)", id,
                            shard_.first, shard_.first + shard_.stride, shard_.count));
    out.data<int64_t>()[k] = at;
  }
  return out;
}

// ---- checkpoints

ValueMap Table::saved() const {
  ValueMap out{{"rows", table_}, {"steps", steps_.saved()}, {"averages", averages_.saved()}};
  if (!previous_at_.empty()) out["previous"] = ValueList{previous_.ids, previous_.values};
  return out;
}

void Table::load(ValueMap saved) {
  auto rows = internal::from_value<Tensor>(std::move(saved.at("rows")));
  if (rows.shape() != table_.shape() || rows.dtype() != table_.dtype())
    throw_invalid("[table] the checkpoint has rows " + rows.summary() + "; here they are " +
                  table_.summary());
  steps_.load(std::move(saved.at("steps")), table_.shape());
  averages_.load(std::move(saved.at("averages")), table_.shape());
  table_ = std::move(rows);
  previous_ = {}, previous_at_.clear();
  if (const auto at = saved.find("previous"); at != saved.end()) {
    auto [ids, values] = internal::from_value<std::pair<Tensor, Tensor>>(std::move(at->second));
    set_previous({std::move(ids), std::move(values)});
  }
  recorded_.clear();
}

void Table::set_previous(Rows previous) {
  previous_ = std::move(previous);
  for (int64_t k = 0; k < previous_.ids.numel(); ++k) previous_at_[previous_.ids.data<int64_t>()[k]] = k;
}

// ---- reading

Tensor Table::values(const Tensor& ids, bool previous) const {
  const Tensor rows = rows_of(table_, ids);
  if (!previous || previous_at_.empty()) return rows;
  const size_t bytes = static_cast<size_t>(shard_.width) * sizeof(float);
  for (int64_t k = 0; k < ids.numel(); ++k)
    if (const auto it = previous_at_.find(ids.data<int64_t>()[k]); it != previous_at_.end())
      std::memcpy(rows.bytes() + static_cast<size_t>(k) * bytes,
                  previous_.values.bytes() + static_cast<size_t>(it->second) * bytes, bytes);
  return rows;
}

Task<PulledRows> Table::pull(TrainerId trainer, Tensor ids, Compression how) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  check_pull(how, "[table]");
  const Tensor at = here(ids);
  const Consistency::Reading reading = co_await this->reading(trainer, 0);
  Tensor rows = values(at, reading.previous);
  if (frame().context != 0 && grad_enabled()) {
    rows.requires_grad_();
    Recorded& recorded = recorded_[trainer.name];
    if (std::exchange(recorded.context, frame().context) != frame().context) recorded.rows.clear();
    recorded.rows.push_back({at, rows});
  }
  PulledRows out{reading.stamp, pack({rows}, how)};
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
  co_return out;
}

Task<Tensor> Table::read(Tensor ids) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  Tensor rows = values(here(ids), false);
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
  co_return rows;
}

// ---- pushes

void check_finite(const std::string& trainer, const Tensor& gradients) {
  if (optim::all_finite(gradients)) return;
  throw_invalid(
      fmt::format("[table] trainer \"{}\" pushes gradients with NaN or infinite elements; the step is open: "
                  "push others, or none with weight 0",
                  trainer));
}

Task<Pushed> Table::push(TrainerId trainer, VersionStamp stamp, Tensor ids, Packed packed, double weight) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  std::optional<Pushed> pushed = done_before(trainer);
  if (!pushed) pushed = take_rows(trainer, stamp, ids, std::move(packed), weight);
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
  co_return *pushed;
}

Pushed Table::take_rows(const TrainerId& trainer, const VersionStamp& stamp, const Tensor& ids, Packed packed,
                        double weight) {
  const Tensor at = here(ids);
  const Shape shape{at.numel(), shard_.width};
  const auto refuse = [&](const std::string& what) {
    throw_invalid(fmt::format("[table] trainer \"{}\" pushes {}", trainer.name, what));
  };
  const Tensors unpacked = unpack(std::move(packed), {{float32, shape}});
  const Tensor gradients = unpacked.size() == 1 ? unpacked[0] : Tensor();
  if (!gradients.defined() || gradients.shape() != shape || gradients.dtype() != float32)
    refuse(fmt::format("{} for {} rows; expected float32 {}",
                       gradients.defined() ? gradients.str() : "nothing", at.numel(), shape.str()));
  if (weight == 0) {  // NaN times 0 must not stay
    const Rows none = sum({}, shard_.width);
    return take(trainer, stamp, {none.ids, none.values}, 0);
  }
  check_finite(trainer.name, gradients);
  return take(trainer, stamp, {at, gradients.detach().contiguous_data()}, weight);
}

Task<std::vector<double>> Table::check_push(TrainerId trainer, VersionStamp stamp, double weight,
                                            bool scaled) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  const Rows all = recorded_gradients(trainer, stamp, weight);
  if (!scaled) check_finite(trainer.name, all.values);
  check_take(trainer, stamp, weight);
  if (weight == 0 || !scaled) co_return std::vector<double>();
  co_return optim::gradient_sizes({all.values}, true);
}

Task<Pushed> Table::push_context(TrainerId trainer, VersionStamp stamp, double weight, double factor) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  std::optional<Pushed> pushed = done_before(trainer);
  if (!pushed) pushed = take_context(trainer, stamp, weight, factor);
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
  co_return *pushed;
}

Table::Rows Table::recorded_gradients(const TrainerId& trainer, const VersionStamp& stamp,
                                      double weight) const {
  check_context_push(stamp, "[table]", "push()");
  const auto at = recorded_.find(trainer.name);
  if (weight != 0 && (at == recorded_.end() || at->second.context != frame().context))
    refuse_context(trainer, "[table]");
  return weight == 0 ? sum({}, shard_.width) : context_gradients(trainer.name);
}

Pushed Table::take_context(const TrainerId& trainer, const VersionStamp& stamp, double weight,
                           double factor) {
  Rows all = recorded_gradients(trainer, stamp, weight);
  if (factor != 1) all.values = optim::scaled(all.values, factor);
  check_finite(trainer.name, all.values);
  const Pushed pushed = take(trainer, stamp, {all.ids, all.values}, weight);
  recorded_.erase(trainer.name);
  return pushed;
}

Table::Rows Table::context_gradients(const std::string& trainer) const {
  std::vector<Contribution> pulled;
  const auto it = recorded_.find(trainer);
  if (it != recorded_.end() && it->second.context == frame().context)
    for (const Rows& rows : it->second.rows)
      if (const Tensor g = autograd::context_gradient(rows.values); g.defined())
        pulled.push_back({1, {rows.ids, g.detach().contiguous_data()}});
  return sum(pulled, shard_.width);
}

std::vector<double> Table::gradient_sizes(bool largest) {
  Tensors gradients;
  for (const auto& [trainer, recorded] : recorded_) gradients.push_back(context_gradients(trainer).values);
  return optim::gradient_sizes(gradients, largest);
}

void Table::scale_gradients(double factor, bool wide) {
  for (const auto& [trainer, recorded] : recorded_)
    if (recorded.context == frame().context)
      for (const Rows& rows : recorded.rows) optim::scale_gradients({rows.values}, factor, wide);
}

// All rows that the contributions have, each once, in the order of their appearance.
Table::Rows Table::sum(const std::vector<Contribution>& contributions, int64_t width) {
  std::unordered_map<int64_t, int64_t> at;
  std::vector<int64_t> ids;
  for (const Contribution& contribution : contributions)
    for (const int64_t id : contribution.what[0].to_vector<int64_t>())
      if (at.try_emplace(id, static_cast<int64_t>(ids.size())).second) ids.push_back(id);
  Rows out{tensor(ids), zeros({static_cast<int64_t>(ids.size()), width})};
  for (const Contribution& contribution : contributions) {
    const auto factor = static_cast<float>(contribution.factor);
    const int64_t* id = contribution.what[0].data<int64_t>();
    const float* g = contribution.what[1].data<float>();
    for (int64_t k = 0; k < contribution.what[0].numel(); ++k) {
      float* row = out.values.data<float>() + at[id[k]] * width;
      for (int64_t j = 0; j < width; ++j) row[j] += factor * g[k * width + j];
    }
  }
  return out;
}

void Table::update(optim::Optimizer& optimizer, const std::vector<Contribution>& contributions) {
  const Rows rows = sum(contributions, shard_.width);
  previous_at_.clear();
  if (consistency().policy().kind == ServerPolicy::Kind::delayed)
    set_previous({rows.ids, rows_of(table_, rows.ids)});
  if (rows.ids.numel() > 0)
    (averaging() ? averages_ : steps_).step(table_, rows.ids, rows.values, optimizer.options_map(0));
}

}  // namespace troupe::parallel
