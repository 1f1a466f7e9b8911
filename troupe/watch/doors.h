// The doors of running processes: abstract sockets, which leave nothing in the file system and are on no
// network.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/descriptor.h"

namespace troupe::internal::watch {

/// A process that can be asked. Its name has all that is known of it without asking.
struct Door {
  uid_t user = 0;
  pid_t pid = 0;
  uint32_t rank = 0;  ///< of the worker that answers
  std::string job;    ///< the same for all processes of the job
  /// "troupe-watch-1000-4711-2-0f3a"; what stands in a job's name but letters, digits, '.', '_' and '-' is
  /// '_'.
  std::string name() const;
  static std::optional<Door> from(const std::string& name);
};

/// The doors of this user on this host (in this network namespace), by job and rank; root's: of all users.
std::vector<Door> doors_here();
/// 'R', 'S', 'T' (stopped), ... of a process; 0 if it is not there.
char process_state(pid_t pid);

/// Listens there; empty, with errno, if that is not to be had.
Descriptor listen_at_door(const Door& door);
/// Connects; empty if nobody listens.
Descriptor knock(const Door& door);
/// Who is at the other end of a connection; empty if the system does not say.
std::optional<uid_t> user_of(int connection);

}  // namespace troupe::internal::watch
