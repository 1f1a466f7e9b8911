// Data parallel training by name.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "parallel/data/data_parallel.h"
#include "script/session.h"

namespace troupe::script {

/// parallel::DataParallel of actors whose type is known by name.
class Replicas : public parallel::AnyDataParallel {
 public:
  /// Actors of one type, each a reference; or a module's specification, of which each worker gets a "Module",
  /// or with Shard::all a "ShardedModule". Options: on (the workers, for a module), buffers, first_bucket,
  /// bucket (bytes), compression, aggregation, shard, gather and reduce ("use" or "step"). `invalid` with the
  /// nearest name for others.
  static std::shared_ptr<Replicas> make(Session& session, Value model, ValueMap options);

  const std::vector<AnyRef>& actors() const { return members(); }
  using Argument = std::variant<Value, parallel::Split>;
  /// DataParallel::mean() and rows() of a method. On the session's thread, in the step that it is part of.
  Future<Tensor> mean(Session& session, const std::string& method, const std::vector<Argument>& args) {
    return call(session, Join::mean, method, args);
  }
  Future<Tensor> rows(Session& session, const std::string& method, const std::vector<Argument>& args) {
    return call(session, Join::rows, method, args);
  }

 private:
  using Make = std::function<AnyRef(const Place&)>;
  Replicas(std::vector<AnyRef> actors, const parallel::DataParallelOptions& options, Make make);
  AnyRef make_replica(const Place& worker) override;
  void replicas_changed(const std::vector<AnyRef>&) override {}
  Future<Tensor> call(Session& session, Join join, const std::string& method,
                      const std::vector<Argument>& args);
  static Given given_by(const Value& result);
  const Make make_;
};

}  // namespace troupe::script
