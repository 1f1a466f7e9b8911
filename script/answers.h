// Answers of calls: each use of one is a use of its value.
#pragma once
#include <memory>
#include <string>

#include "script/session.h"

namespace troupe::script {

/// The answer of a call, which is waited for where its value is used.
struct Answer {
  Future<Value> future;
  std::string what = {};                 ///< "Half::forward on w1"
  std::shared_ptr<Step> step = nullptr;  ///< that it is part of, until it is there
  uint64_t number = 0;                   ///< of Session::keep()
  bool gives = true;                     ///< false: the method returns nothing
  bool argument = false;                 ///< of a call, to whose worker its result may go

  /// After this the future is that of the value, wherever that went.
  void look(Session& session);
  /// The value, once it is there, or its error; a wait that is interrupted ends the call. It counts as seen.
  Value get(Session& session);
  /// Waits as get(), but who is interrupted can wait again.
  Value wait(Session& session);
  /// Nobody wants the value: the call ends at its callee.
  void cancel(Session& session);
  /// "future of Half::forward on w1, not there yet".
  std::string str() const;
};

/// The answer that this future will bring, which goes on though nobody holds it.
Answer answer_of(Session& session, const Future<Value>& future, std::string what, bool gives = true);

/// An argument of a call: a value, or an answer, which is not waited for. The answer has to live meanwhile.
struct CallArgument {
  Value value = {};
  Answer* answer = nullptr;
};
/// Calls a method. Answers that are still on their way go where the call goes, without a wait here.
Answer call(Session& session, const AnyRef& actor, const std::string& method,
            std::vector<CallArgument> arguments, ValueMap named, std::shared_ptr<Step> step);
/// Whether a map has the name of some parameter of that method, or of a constructor of that type: for
/// languages in which a map may be meant as an argument, or as arguments by name.
bool names_parameters(Session& session, const AnyRef& actor, const std::string& method, const ValueMap& map);
bool names_parameters(Session& session, const std::string& type, const Place& where, const ValueMap& map);

}  // namespace troupe::script
