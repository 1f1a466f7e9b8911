// An embedding table in servers, as the trainers see it: which server has which rows, and a client that asks
// all of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "parallel/server/served_parameters.h"

namespace troupe::parallel {

class Table;

/// Which server has row r of a table with n servers.
enum class Rows {
  by_range,  ///< runs of rows / n rows: neighbours stay together
  by_hash,   ///< r modulo n: often used neighbours are spread
};

struct TableOptions {
  Rows cut = Rows::by_hash;
  double scale = 0.05;  ///< rows start uniform in [-scale, scale)
  uint64_t seed = 0;
};

/// A table and its servers. A value: keep it, send it to trainers.
struct ServedTable {
  int64_t rows = 0, width = 0;
  bool by_range = false;
  std::vector<RRef<Table>> servers;
  Compression pull, push;                 ///< of rows, and of their gradients
  std::vector<RRef<Table>> backups = {};  ///< one for each server; none
  int64_t server_of(int64_t row) const;
};

}  // namespace troupe::parallel

extern template struct troupe::internal::StructCodec<troupe::parallel::ServedTable>;

namespace troupe::parallel {

/// A float32 table [rows, width] on these workers. `invalid` on sizes below 1, no places, compression that
/// leaves something out (of rows that other steps do not name, which could not be made good), and as Table;
/// the last shows when the servers are used.
ServedTable serve_table(const Here& here, const std::vector<Place>& where, int64_t rows, int64_t width,
                        const ServerOptions& options, const TableOptions& table = {});

/// Rows as they are now, for anybody: ids int64 [..] -> [.., width].
Future<Tensor> read(const ServedTable& table, const Tensor& ids);
/// For all servers; each changes at its next message.
Future<void> set_policy(const ServedTable& table, const ServerPolicy& policy);
Future<void> set_options(const ServedTable& table, const ValueMap& changed);
/// Of each server.
Future<std::vector<ServerReport>> report(const ServedTable& table);

/// One trainer's way to a table; joins, and leaves at its end. As Client, with rows in place of parameters.
///
///   parallel::TableClient words(table);
///   Tensor e = co_await words.pull(ids);         // [batch, length] -> [batch, length, width]
///   ...                                          // a model, a loss, a backward pass
///   co_await words.push_context(batch_size);
///
/// A row that is asked for twice travels once, and its gradients are added up before they travel. A step's
/// push goes to all servers, so that each knows that the step is over for this trainer.
class TableClient {
 public:
  explicit TableClient(ServedTable table, ClientOptions options = {});
  ~TableClient();  ///< leaves, without waiting
  TableClient(TableClient&&) = default;
  TableClient& operator=(TableClient&&) = delete;

  /// ids int64 [..] -> [.., width]. `invalid` at once for rows out of range. Inside an autograd::Context
  /// recorded. Several pulls may belong to one step.
  Future<Tensor> pull(const Tensor& ids) const;
  /// gradients [.., width] of rows ids [..], of the values of the last pulls.
  Future<Pushed> push(const Tensor& ids, const Tensor& gradients, double weight = 1) const;
  /// As Client::push_context, of the rows that were pulled.
  Future<Pushed> push_context(double weight = 1) const;
  /// Client::part() of rows.
  optim::StepPart part(double weight = 1) const;
  /// The trainer has gone from all servers.
  Future<void> leave();

 private:
  struct State;
  State& state() const;  // `invalid` if this was moved from
  std::shared_ptr<State> state_;
};

}  // namespace troupe::parallel
