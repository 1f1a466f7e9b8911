#include "script/server_client.h"

#include <utility>

namespace troupe::script {
namespace {

parallel::ClientOptions named(const std::string& name) {
  parallel::ClientOptions options;
  if (!name.empty()) options.name = name;
  return options;
}

Future<Value> pushed_value(const Future<parallel::Pushed>& pushed) {
  return pushed.then([](const parallel::Pushed& p) {
    return Value(ValueMap{{"version", p.version}, {"late", p.late}});
  });
}

}  // namespace

ServerClient::ServerClient(const parallel::Served& served, const std::string& name)
    : client_(std::make_shared<parallel::Client>(served, named(name))) {}

Future<Value> ServerClient::pull(int64_t at_least) {
  pull_ = client_->pull(at_least);
  return pull_->then([](const Tensors& t) { return Codec<Tensors>::to(t); });
}

// In a script, too, where nobody has waited for it.
parallel::Client& ServerClient::pulled(Session& session) {
  if (const auto pull = std::exchange(pull_, {})) session.get(*pull);
  return *client_;
}

Future<Value> ServerClient::push(Session& session, const Tensors& gradients, double weight) {
  return pushed_value(pulled(session).push(gradients, weight));
}

Future<Value> ServerClient::push_context(Session& session, const Step& step, double weight) {
  parallel::Client& client = pulled(session);
  const autograd::Context::Guard in(step.context());
  return pushed_value(client.push_context(weight));
}

Future<Value> ServerClient::push_values(Session& session, const Tensors& values, double weight) {
  return pushed_value(pulled(session).push_values(values, weight));
}

}  // namespace troupe::script
