#include "script/pools.h"

#include <utility>

#include "core/base/error.h"
#include "script/options.h"

namespace troupe::script {

namespace {

PoolOptions pool_options(ValueMap given) {
  Options options(std::move(given), "[pool]");
  PoolOptions out;
  out.size = options.take("size", out.size);
  if (const Value on = options.take("on", Value()); const auto* one = on.get_if<std::string>())
    out.workers = {*one};
  else if (!on.is_null())
    out.workers = Codec<std::vector<std::string>>::from(on);
  out.at_once = options.take("at_once", out.at_once);
  out.restart.most = options.take("most", out.restart.most);
  out.restart.within =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.take("within", 60.0)));
  const std::string restart = options.take("restart", std::string("one"));
  options.end();
  if (restart != "one" && restart != "all" && restart != "none")
    throw_invalid("[pool] option restart: got \"" + restart + "\", expected \"one\", \"all\" or \"none\"");
  out.restart.restart = restart == "one" ? Restart::one : restart == "all" ? Restart::all : Restart::none;
  return out;
}

}  // namespace

NamedPool::NamedPool(Session& session, const std::string& type, ValueList args, ValueMap named,
                     ValueMap options)
    : session_(session),
      core_(internal::PoolCore::create(
          session.cluster(), pool_options(std::move(options)), type,
          [&session, type, args = std::move(args), named = std::move(named)](const std::string& worker) {
            return session.spawn(type, Place(worker), args, named);
          })) {}

void NamedPool::again(const std::string& method, int times) {
  const internal::Lock lock(mutex_);
  again_[method] = times;
}

int NamedPool::times(const std::string& method) const {
  const internal::Lock lock(mutex_);
  const auto at = again_.find(method);
  return at == again_.end() ? 0 : at->second;
}

Future<Value> NamedPool::call(const std::string& method, ValueList args, ValueMap named,
                              std::optional<size_t> member) {
  const Promise<Value> promise;
  auto result = promise.future();
  internal::PoolCore::Work work;
  work.label = core_->type() + "::" + method;
  work.fail = [promise](const Error& e) { promise.fail(e); };
  work.to = [promise, method, args = std::move(args), named = std::move(named), &session = session_](
                const AnyRef& actor, const internal::PoolCore::Work::Ended& ended) {
    if (!promise.wanted()) return (void)ended(nullptr);  // its future was dropped while it waited
    Future<Value> given;
    try {
      given = session.call(actor, method, args, named, nullptr);
    } catch (...) {
      const Error why = current_error();
      if (!ended(&why)) promise.fail(why);
      return;
    }
    promise.waits_for(given.as_source());
    given.watch([promise, ended](const Result<Value>& r) {
      if (!ended(r.ok() ? nullptr : &r.error())) promise.complete(r);
    });
  };
  core_->add(std::move(work), member, times(method));
  return result;
}

}  // namespace troupe::script
