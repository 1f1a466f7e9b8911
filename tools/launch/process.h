// Starting processes that cannot outlive the launcher.
#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/descriptor.h"

namespace troupe::tools {

using internal::Descriptor;

/// A pipe, closed on exec; the read end does not block. Throws `failed`.
std::pair<Descriptor, Descriptor> make_pipe();

/// The keeper: a process that does nothing but lead the process group of all workers. While it is there, the
/// group's number cannot become somebody else's; when the launcher dies, however it dies, the keeper kills
/// the group, grandchildren included. A Ctrl-C or Ctrl-Z that the terminal gave to the group is passed on to
/// the launcher as SIGUSR1 (with the signal as its value). Call before any pipe is open. Throws `failed`.
pid_t start_keeper();

struct Start {
  std::vector<std::string> arguments;    ///< [0] is the path of the program
  std::vector<std::string> environment;  ///< "NAME=value", complete
  pid_t group = 0;                       ///< process group to join
  int in = 0, out = 1, err = 2;          ///< become descriptors 0, 1, 2
  int keep = -1;                         ///< stays open, under its number
  rlim_t files = 0;                      ///< soft limit of open files to give back; 0: leave it
  bool stays = false;                    ///< through the signals that ask for an end
};

/// Starts a program; returns when it runs. It dies with the launcher. Throws `failed` naming the reason if it
/// cannot be executed.
pid_t start_process(const Start& start);

/// Our environment with these variables set and those named in `without` left out.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables,
                                          const std::vector<std::string>& without);

}  // namespace troupe::tools
