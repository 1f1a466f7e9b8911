// A trainer of served parameters: what it pulls and pushes, as values.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "parallel/server/served_parameters.h"
#include "script/session.h"

namespace troupe::script {

/// One trainer of parameters that are served. For one thread.
class ServerClient {
 public:
  /// `name`: empty: one of its own.
  ServerClient(const parallel::Served& served, const std::string& name);
  const std::string& name() const { return client_->name(); }
  int64_t version() const { return client_->version(); }
  /// The values, when the policy lets this trainer read. In the step that is entered here.
  Future<Value> pull(int64_t at_least);
  /// Gradients that were computed on the last pull, which has come then: waits for it. So with the others:
  /// the gradients that a step has for what was pulled in it, and under local(H) the values after H steps.
  Future<Value> push(Session& session, const Tensors& gradients, double weight);
  Future<Value> push_context(Session& session, const Step& step, double weight);
  Future<Value> push_values(Session& session, const Tensors& values, double weight);
  Future<void> leave() { return client_->leave(); }

 private:
  parallel::Client& pulled(Session& session);
  std::shared_ptr<parallel::Client> client_;
  std::optional<Future<Tensors>> pull_;  // the last one, until somebody has waited for it
};

}  // namespace troupe::script
