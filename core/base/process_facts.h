// What the system says about this process: its time on a core, its memory, and how long it had to wait for a
// core.
#pragma once
#include <cstdint>
#include <string>

namespace troupe {

struct ProcessFacts {
  int64_t pid = 0;
  std::string program = {};  ///< "digits"
  double cpu = 0;            ///< seconds that its threads have run
  double starved = 0;        ///< seconds that they could have run, and no core was free for them
  int64_t memory = 0;        ///< bytes of it in memory
  int64_t peak_memory = 0;   ///< the most that there were
  int64_t threads = 0;
};

/// Zero where the system says nothing.
ProcessFacts process_facts();
/// Its name, from its file.
std::string program_name();

}  // namespace troupe
