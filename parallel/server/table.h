// Table: an actor that holds some rows of an embedding table, for trainers that read rows and push gradients
// of rows.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "parallel/server/compression/packed.h"
#include "parallel/server/row_optimizer.h"
#include "parallel/server/server_base.h"

namespace troupe::parallel {

/// Which rows of a table one of its servers has, and how they start.
struct TableShard {
  int64_t rows = 0, width = 0;    ///< of the whole table
  int64_t first = 0, stride = 1;  ///< this server has rows first, first + stride, ...
  int64_t count = 0;              ///< so many
  double scale = 0;               ///< they start uniform in [-scale, scale), by number and seed
  uint64_t seed = 0;
};

/// `invalid` if gradients of rows that a trainer pushes have elements that are not finite.
void check_finite(const std::string& trainer, const Tensor& gradients);

/// The first values of rows ids int64 [k] -> float32 [k, width], whichever server has them.
Tensor initial_rows(const Tensor& ids, int64_t width, double scale, uint64_t seed);

struct PulledRows {
  VersionStamp stamp;
  Packed rows;  // one tensor
};

/// A part of a table under one policy, with one optimizer that steps row by row (RowOptimizer). Rows are
/// numbered as in the whole table. As with a Server, a pull inside an autograd::Context is recorded: the rows
/// that it gives are leaves of their own, so a gradient is as small as what was read. serve_table() makes one
/// for each place, and a TableClient speaks to all of them (parallel/server/served_table.h).
class Table final : public ServerBase {
 public:
  Table(TableShard shard, ServerOptions options, ServerPair pair = {});

  /// ids int64 [k], distinct -> rows [k, width], when the policy lets the trainer read. `invalid` for rows
  /// that are not here, and as Server::pull. Several pulls in a step read for the same step.
  Task<PulledRows> pull(TrainerId trainer, Tensor ids, Compression how);
  /// For anybody: the values of now.
  Task<Tensor> read(Tensor ids);
  /// A gradient [k, width] for distinct rows, which may be none. `invalid`, with nothing changed: other
  /// shapes, rows that are not here, elements that are not finite, and as unpack() and Consistency::push.
  Task<Pushed> push(TrainerId trainer, VersionStamp stamp, Tensor ids, Packed gradients, double weight);
  /// The same with the gradients that the context of this call has for the rows that the trainer has pulled
  /// in it, times `factor`.
  Task<Pushed> push_context(TrainerId trainer, VersionStamp stamp, double weight, double factor);
  /// Throws what push_context() would, and gives sizes, as Server::check_push.
  Task<std::vector<double>> check_push(TrainerId trainer, VersionStamp stamp, double weight, bool scaled);
  /// Of the gradients that push_context() would take, each trainer's by itself: gradients_of()
  /// (parallel/server/served_gradients.h).
  std::vector<double> gradient_sizes(bool largest);
  void scale_gradients(double factor, bool wide);

  static constexpr auto remote =
      methods<&Table::join, &Table::leave, &Table::set_policy, &Table::set_options, &Table::report,
              &Table::pull, &Table::read, &Table::push, &Table::push_context, &Table::check_push,
              &Table::gradient_sizes, &Table::scale_gradients>;

 private:
  struct Rows {
    Tensor ids, values;  // ids: of this shard, from 0
  };
  ValueMap saved() const override;
  void load(ValueMap saved) override;
  void update(optim::Optimizer& optimizer, const std::vector<Contribution>& contributions) override;
  void set_previous(Rows previous);
  Pushed take_rows(const TrainerId& trainer, const VersionStamp& stamp, const Tensor& ids, Packed gradients,
                   double weight);
  Pushed take_context(const TrainerId& trainer, const VersionStamp& stamp, double weight, double factor);
  // What push_context() takes; `invalid` where it takes nothing.
  Rows recorded_gradients(const TrainerId& trainer, const VersionStamp& stamp, double weight) const;
  void gone(const std::string& trainer) override { recorded_.erase(trainer); }
  Tensor here(const Tensor& ids) const;
  Tensor values(const Tensor& ids, bool previous) const;
  static Rows sum(const std::vector<Contribution>& contributions, int64_t width);
  // Of what the trainer has pulled in the context of this call, added up.
  Rows context_gradients(const std::string& trainer) const;

  TableShard shard_;
  Tensor table_;  // [count, width]
  RowOptimizer steps_, averages_{"sgd"};
  Rows previous_;  // under delayed: what the last update changed, before it
  std::unordered_map<int64_t, int64_t> previous_at_;
  struct Recorded {
    uint64_t context = 0;
    std::vector<Rows> rows;  // values: leaves
  };
  std::map<std::string, Recorded> recorded_;  // by trainer: what it pulled in its last context
};

}  // namespace troupe::parallel
