// The objects that scripts hold.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "parallel/server/served_parameters.h"
#include "rref/any_ref.h"
#include "script/answers.h"
#include "script/modules.h"
#include "tools/repl/lua/lua.h"

namespace troupe::script {
struct MeshPipelines;
class Replicas;
}  // namespace troupe::script

namespace troupe::repl {

template <>
struct ObjectName<Tensor> {
  static constexpr const char* value = "tensor";
};
template <>
struct ObjectName<AnyRef> {
  static constexpr const char* value = "reference";
};
template <>
struct ObjectName<Bytes> {
  static constexpr const char* value = "bytes";
};

/// The answer of a call, which is waited for where its value is used.
struct FutureObject : script::Answer {
  explicit FutureObject(script::Answer answer) : Answer(std::move(answer)) {}
  bool stays = false;  ///< after async(): the prompt shows it as it is
  using Answer::get;
  Value get(lua_State* L);  ///< waits
};
template <>
struct ObjectName<FutureObject> {
  static constexpr const char* value = "future";
};

/// Pushes a future of what is named so, which reports its end; `gives`: a value.
int push_future(lua_State* L, const Future<Value>& future, const std::string& what, bool gives = true);

using StepObject = std::shared_ptr<script::Step>;
template <>
struct ObjectName<StepObject> {
  static constexpr const char* value = "context";
};

/// The context at an index, or else the one that is open here, with all its gradients: steps of pipelines
/// that nobody has waited for have ended. Null: there is none.
StepObject step_with_gradients(lua_State* L, int at);

using ModuleObject = script::NamedModule;
template <>
struct ObjectName<ModuleObject> {
  static constexpr const char* value = "module";
};

struct ServedObject {
  parallel::Served served;
};
template <>
struct ObjectName<ServedObject> {
  static constexpr const char* value = "served";
};

using ReplicasObject = std::shared_ptr<script::Replicas>;
template <>
struct ObjectName<ReplicasObject> {
  static constexpr const char* value = "replicas";
};

using PipelinesObject = std::shared_ptr<script::MeshPipelines>;
template <>
struct ObjectName<PipelinesObject> {
  static constexpr const char* value = "pipelines";
};

/// Pushes a tensor, and tells the collector how much memory it holds alone.
void push_tensor(lua_State* L, Tensor tensor);
/// A tensor at an index; a number becomes a 0-d one. A Lua error otherwise.
Tensor tensor_at(lua_State* L, int at);
/// Tensors by name at an index; `call` is what wants them: "m:load_state_dict(state)".
std::map<std::string, Tensor> state_at(lua_State* L, int at, const char* call);
/// The elements of a table that nests lists of numbers or booleans, as a tensor: int64, float32 or bool.
Tensor tensor_of_table(lua_State* L, int at, std::optional<DType> dtype);

}  // namespace troupe::repl
