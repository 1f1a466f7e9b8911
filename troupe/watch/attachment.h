// What a guest is given at the door of a job, so that it can connect to the workers.
#pragma once
#include <string>
#include <vector>

#include "actors/worker/worker.h"
#include "troupe/launch/launch_environment.h"

namespace troupe::internal::watch {

/// A number for a guest, of all that there are, so that none has the one of a guest before it, who is counted
/// as lost.
WorkerId new_guest();

struct Attachment {
  std::string job, program;
  WorkerId id = 0;       ///< of the guest; nobody else is given it
  std::string pass;      ///< in place of the token: net/protocol/standing.h
  bool control = false;  ///< the job lets its guests call actors
  std::vector<actors::Member> members;
  bool shared_memory = true;  ///< the rest as LaunchEnvironment has it
  Encryption encryption = Encryption::off;
  Certificate certificate;

  /// For one more guest of the job of that worker. `invalid` if its workers share the memory of one process:
  /// nobody can come in there.
  static Attachment to(actors::Worker& worker, const std::string& job, const LaunchEnvironment* environment);
  std::string json() const;
  /// Reads json(); `failed` if it is none, or an error instead, as the door has it.
  static Attachment parse(const std::string& json);
};

}  // namespace troupe::internal::watch
